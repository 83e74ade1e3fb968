"""Runs the kernel of a store: in its own thread (see `thread_host`), or in the loop of an open kernel.

Stores share one engine for each process and URL: a store for another tenant needs no new connection.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

from keelbolt.errors import StorageClosed
from keelbolt.kernel import Kernel
from keelbolt.state.engine.connection import CLOSED, StoreConnection
from keelbolt.state.engine.writer import StateWriter
from keelbolt.state.engine.writes import StateWrite

Engine = Callable[[], tuple[StoreConnection, StateWriter]]


class KernelHost(Protocol):
    """Runs the kernel of a store and accepts its reads and writes."""

    @property
    def writer(self) -> StateWriter | None:
        """The writer, or None before it is created."""

    def post(self, write: StateWrite) -> None:
        """Accept a write. Call order is commit order."""

    async def ask(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        """Call the function with the kernel, after all writes posted before are committed, and return its result."""

    def begin(
        self, function: Callable[[Kernel], Awaitable[T]], *, seconds: float | None = None, background: bool = False
    ) -> Future[T]:
        """Start `ask` as a detached task that takes at most ``seconds``.

        `flush` and `close` wait for it. In the ``background``, `flush` does not wait for it, and `close` cancels it.
        """

    async def flush(self) -> None:
        """Return when all writes posted before are committed, spooled or lost."""

    async def close(self) -> None:
        """Finish all work and release the kernel."""

    def abandon(self) -> None:
        """Accept no more work and finish in the background."""


class LoopHost:
    """Uses an open kernel in its own loop."""

    def __init__(self, engine: Engine) -> None:
        self._link, self.writer = engine()
        self._begun = DetachedTasks()

    def post(self, write: StateWrite) -> None:
        self.writer.take((write,))

    async def ask(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        return await ask_kernel(self._link, self.writer, function)

    def begin(
        self, function: Callable[[Kernel], Awaitable[T]], *, seconds: float | None = None, background: bool = False
    ) -> Future[T]:
        work = self._begun.run(partial(self.ask, function), seconds, background=background)
        return asyncio.run_coroutine_threadsafe(work, asyncio.get_running_loop())

    async def flush(self) -> None:
        await self._begun.finish()
        await self.writer.settle()
        await self.writer.recovery.replay()

    async def close(self) -> None:
        await self._begun.close()
        await self.writer.close()
        await self._link.close()

    def abandon(self) -> None:
        """Do nothing: the owner of the kernel closes it."""


class DetachedTasks:
    """Detached tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._background: set[asyncio.Task[Any]] = set()

    async def run(
        self, work: Callable[[], Awaitable[T]], seconds: float | None = None, *, background: bool = False
    ) -> T:
        """Run the work with a time limit; the task is tracked until it ends."""
        task = asyncio.current_task()
        assert task is not None
        tasks = self._background if background else self._tasks
        tasks.add(task)
        try:
            async with asyncio.timeout(seconds):
                return await work()
        finally:
            tasks.discard(task)

    async def finish(self) -> None:
        """Return when all tasks are done, except those in the background."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel the tasks in the background, and return when all tasks are done."""
        for task in self._background:
            task.cancel()
        if tasks := self._tasks | self._background:
            await asyncio.wait(tasks)


async def claimed(
    host: KernelHost, function: Callable[[Kernel], Awaitable[T]], unclaimed: Callable[[T], None], *, seconds: float
) -> T:
    """Call `KernelHost.ask` for a result that must not be lost: if the caller was cancelled, pass the result to
    ``unclaimed``, provided that it arrives within ``seconds``.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # so that a cancelled caller can't cancel it

    async def run(kernel: Kernel) -> None:
        try:
            answer.set_result(await function(kernel))
        except BaseException as error:
            answer.set_exception(error)
            raise

    begun = host.begin(run, seconds=seconds)
    begun.add_done_callback(partial(_failed, answer))
    try:
        return await asyncio.wrap_future(answer)
    except asyncio.CancelledError:
        answer.add_done_callback(lambda done: None if done.exception() else unclaimed(done.result()))
        raise


def _failed(answer: Future[Any], begun: Future[None]) -> None:
    """Fail the answer if the work ended without setting it."""
    if not answer.done():
        answer.set_exception(StorageClosed(CLOSED) if begun.cancelled() else begun.exception() or StorageClosed(CLOSED))


async def ask_kernel(link: StoreConnection, writer: StateWriter, function: Callable[[Kernel], Awaitable[T]]) -> T:
    """Call the function with the kernel after all writes taken before are committed, and return its result."""
    await writer.settle()
    await writer.recovery.replay()
    try:
        return await function(await link.opened())
    except Exception as error:
        await link.broke(error)
        raise


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

    def begin(
        self, function: Callable[[Kernel], Awaitable[T]], *, seconds: float | None = None, background: bool = False
    ) -> Future[T]:
        return self._opened().begin(function, seconds=seconds, background=background)

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
