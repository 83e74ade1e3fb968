"""Shares one engine for each process and URL among stores: a store for another tenant needs no new connection."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from typing import TypeVar

from keelbolt.errors import StorageClosed
from keelbolt.kernel import Kernel
from keelbolt.state.engine.connection import CLOSED
from keelbolt.state.engine.host import KernelHost
from keelbolt.state.engine.writer import StateWriter
from keelbolt.state.engine.writes import StateWrite

T = TypeVar("T")


class HostRefCount:
    """A host and the number of stores that use it. ``key`` is None for a host that is not shared by key."""

    def __init__(self, host: KernelHost, key: Hashable | None) -> None:
        self.host = host
        self.key = key
        self.users = 0


class SharedHost:
    """One store's reference to a host; closing the last reference closes the host."""

    def __init__(self, engine: HostRefCount) -> None:
        self._engine = engine
        self._closed = False
        self._last = False
        with _lock:
            engine.users += 1

    @classmethod
    def of(cls, key: Hashable | None, make: Callable[[], KernelHost]) -> SharedHost:
        """Return a reference to the host with this key; create the host if necessary."""
        with _lock:
            engine = _engines.get(key) if key is not None else None
            if engine is None:
                engine = HostRefCount(make(), key)
                if key is not None:
                    _engines[key] = engine
            return cls(engine)

    def share(self) -> SharedHost:
        """Return another reference to the same host."""
        if self._closed:
            raise StorageClosed(CLOSED)
        return SharedHost(self._engine)

    @property
    def host(self) -> KernelHost:
        """The shared host."""
        return self._engine.host

    @property
    def writer(self) -> StateWriter | None:
        """The writer of the host, or None before it is created."""
        return self._engine.host.writer

    def post(self, write: StateWrite) -> None:
        self._opened().post(write)

    async def ask(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        return await self._opened().ask(function)

    def begin(self, function: Callable[[Kernel], Awaitable[T]], *, seconds: float | None = None) -> Future[T]:
        return self._opened().begin(function, seconds=seconds)

    async def flush(self) -> None:
        if not self._closed:
            await self._engine.host.flush()

    async def close(self) -> None:
        """Release the host, and close it if no other store uses it. Concurrent calls return together."""
        self._leave()
        if self._last:
            await self._engine.host.close()

    def abandon(self) -> None:
        """Release the host without waiting until it is closed."""
        self._leave()
        if self._last:
            self._engine.host.abandon()

    def _opened(self) -> KernelHost:
        if self._closed:
            raise StorageClosed(CLOSED)
        return self._engine.host

    def _leave(self) -> None:
        with _lock:
            if self._closed:
                return
            self._closed = True
            self._engine.users -= 1
            self._last = self._engine.users == 0
            if self._last and self._engine.key is not None:
                _engines.pop(self._engine.key, None)


_engines: dict[Hashable, HostRefCount] = {}
_lock = threading.RLock()


def _forked() -> None:
    global _lock  # noqa: PLW0603  (the lock may be held by a thread that does not exist in the child)
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)
