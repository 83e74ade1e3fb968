"""Opens and closes all stores together."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from keelbolt.a2a_sdk import scope
from keelbolt.a2a_sdk.events import KeelboltEventStream
from keelbolt.a2a_sdk.families import FAMILIES as SDK_FAMILIES
from keelbolt.a2a_sdk.push import KeelboltPushConfigStore
from keelbolt.a2a_sdk.scope import ScopeResolver, Whose
from keelbolt.a2a_sdk.tasks import KeelboltPlainTaskStore, KeelboltTaskStore
from keelbolt.kernel import open_storage
from keelbolt.tasks.events import TaskFeeds
from keelbolt.tasks.families import FAMILIES
from keelbolt.tasks.stored_tasks import StoredTasks
from keelbolt.webhooks.sealing import Sealer


@dataclass(frozen=True, slots=True)
class SdkStores:
    """``tasks`` is versioned; ``plain_tasks`` is for handlers without versions."""

    tasks: KeelboltTaskStore
    plain_tasks: KeelboltPlainTaskStore
    events: KeelboltEventStream
    push_configs: KeelboltPushConfigStore


@asynccontextmanager
async def sdk_stores(
    url: str, *, whose: Whose = scope.whose, secret_key: str | None = None
) -> AsyncIterator[SdkStores]:
    """Open the stores on this storage. ``whose`` returns the partition of a call's tasks (default: tenant and user).

    ``secret_key`` (default: ``KEELBOLT_SECRET_KEY`` in the environment) encrypts push configs.
    """
    sealer = Sealer.of(os.environ.get("KEELBOLT_SECRET_KEY", "") if secret_key is None else secret_key)
    async with open_storage(url, declare=[*FAMILIES, *SDK_FAMILIES]) as kernel:
        store = StoredTasks(kernel)
        events = TaskFeeds(store)
        directory = ScopeResolver(kernel, whose)
        tasks = KeelboltTaskStore(store, directory)
        try:
            yield SdkStores(
                tasks,
                KeelboltPlainTaskStore(tasks),
                KeelboltEventStream(events, directory),
                KeelboltPushConfigStore(directory, sealer),
            )
        finally:
            events.close()
