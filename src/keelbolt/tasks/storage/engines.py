"""The four storages by name, and the lookup of a storage by a user's argument."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic
from urllib.parse import quote

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import InvalidValue
from keelbolt.kernel import Clock, Durability, open_storage
from keelbolt.kernel.urls import MEMORY
from keelbolt.tasks.storage.contract import ContextT, Storage
from keelbolt.tasks.storage.kernel import KernelStorage


class UrlStorage(KernelStorage[ContextT], Generic[ContextT]):
    """Tasks in the kernel that a URL names; a driver name in it (``sqlite+aiosqlite:``) is ignored."""

    def __init__(
        self,
        url: str,
        principal: Principal = ANONYMOUS,
        *,
        durability: Durability | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(open_storage(url, durability=durability), principal, clock=clock, owns=True)


class InMemoryStorage(UrlStorage[ContextT], Generic[ContextT]):
    """Tasks in the memory of this process: for tests and first steps, because nothing survives the process."""

    def __init__(self, principal: Principal = ANONYMOUS, *, clock: Clock | None = None) -> None:
        super().__init__("memory:", principal, clock=clock)


class SQLiteStorage(UrlStorage[ContextT], Generic[ContextT]):
    """Tasks in a SQLite file, for any number of processes on one machine: its path, or ``sqlite:///path``."""

    def __init__(
        self,
        place: str | os.PathLike[str],
        principal: Principal = ANONYMOUS,
        *,
        durability: Durability | None = None,
        clock: Clock | None = None,
    ) -> None:
        url = place if isinstance(place, str) and "://" in place else f"sqlite:///{quote(str(Path(place)))}"
        super().__init__(_of_scheme(url, "SQLiteStorage", "sqlite"), principal, durability=durability, clock=clock)


class PostgreSQLStorage(UrlStorage[ContextT], Generic[ContextT]):
    """Tasks in PostgreSQL: ``postgresql://user:pass@host/database``."""

    def __init__(
        self,
        url: str,
        principal: Principal = ANONYMOUS,
        *,
        durability: Durability | None = None,
        clock: Clock | None = None,
    ) -> None:
        url = _of_scheme(url, "PostgreSQLStorage", "postgresql", "postgres")
        super().__init__(url, principal, durability=durability, clock=clock)


class RedisStorage(UrlStorage[ContextT], Generic[ContextT]):
    """Tasks in Redis or Valkey: ``redis://host:6379/0``."""

    def __init__(
        self,
        url: str,
        principal: Principal = ANONYMOUS,
        *,
        durability: Durability | None = None,
        clock: Clock | None = None,
    ) -> None:
        url = _of_scheme(url, "RedisStorage", "redis", "rediss", "valkey", "valkeys", "unix")
        super().__init__(url, principal, durability=durability, clock=clock)


_BY_SCHEME: dict[str, Callable[[str], KernelStorage[Any]]] = {
    "sqlite": SQLiteStorage,
    "postgresql": PostgreSQLStorage,
    "postgres": PostgreSQLStorage,
    **dict.fromkeys(("redis", "rediss", "valkey", "valkeys", "unix"), RedisStorage),
}


def storage_of(given: str | Storage[Any]) -> Storage[Any]:
    """Return the storage for ``"memory"``, a URL, or a storage itself."""
    if isinstance(given, Storage):
        return given
    if not isinstance(given, str):
        raise InvalidValue(
            f'storage must be "memory", a URL or a Storage, not {getattr(given, "__name__", type(given).__name__)}'
        )
    if given in MEMORY:
        return InMemoryStorage()
    return _BY_SCHEME.get(_scheme(given), UrlStorage)(given)  # UrlStorage refuses an unknown scheme


def _scheme(url: str) -> str:
    return url.partition(":")[0].partition("+")[0].lower()


def _of_scheme(url: str, name: str, *schemes: str) -> str:
    if not isinstance(url, str) or _scheme(url) not in schemes:
        raise InvalidValue(f"{name} takes a URL that begins with {schemes[0]}:")
    return url
