"""Opens the storage of a command."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from keelbolt.errors import InvalidValue, StorageMissing

if TYPE_CHECKING:
    from keelbolt.kernel.contract import Kernel

FIRST_MIGRATION = 1


async def opened(url: str, *, create: bool = False) -> Kernel:
    """Return the storage at this URL, which other processes may use too. ``create``: create it if it does not exist."""
    from keelbolt.kernel.urls import open_storage

    if url.partition(":")[0] == "memory":
        raise InvalidValue(
            "memory: can't be shared with other processes; use sqlite:///path, postgresql:// or redis://"
        )
    return open_storage(url) if create else await existing(url)


async def existing(url: str) -> Kernel:
    """Return the storage at this URL. Raise StorageMissing instead of creating it, as for a mistyped path."""
    from keelbolt.kernel.urls import open_storage, pending_migrations

    if any(migration.number == FIRST_MIGRATION for migration in await asyncio.to_thread(pending_migrations, url)):
        raise StorageMissing("no storage exists at this URL; check the path, or create it with `keelbolt migrate URL`")
    return open_storage(url)
