"""Runs the kernel of a store: in its own thread (see `thread_host`), or in the loop of an open kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

from keelbolt.errors import StorageClosed
from keelbolt.kernel import Kernel
from keelbolt.state.engine.connection import CLOSED, StoreConnection
from keelbolt.state.engine.writer import StateWriter
from keelbolt.state.engine.writes import StateWrite

T = TypeVar("T")

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

    def begin(self, function: Callable[[Kernel], Awaitable[T]], *, seconds: float | None = None) -> Future[T]:
        """Start `ask` as a detached task. `close` waits for it, up to ``seconds``."""

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

    def begin(self, function: Callable[[Kernel], Awaitable[T]], *, seconds: float | None = None) -> Future[T]:
        work = self._begun.run(partial(self.ask, function), seconds)
        return asyncio.run_coroutine_threadsafe(work, asyncio.get_running_loop())

    async def flush(self) -> None:
        await self._begun.finish()
        await self.writer.settle()
        await self.writer.recovery.replay()

    async def close(self) -> None:
        await self._begun.finish()
        await self.writer.close()
        await self._link.close()

    def abandon(self) -> None:
        """Do nothing: the owner of the kernel closes it."""


class DetachedTasks:
    """Detached tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Run the work with a time limit; the task is tracked until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with asyncio.timeout(seconds):
                return await work()
        finally:
            self._tasks.discard(task)

    async def finish(self) -> None:
        """Return when all tasks are done."""
        if self._tasks:
            await asyncio.wait(self._tasks)


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
