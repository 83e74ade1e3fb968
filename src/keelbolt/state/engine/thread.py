"""Runs a kernel in a thread with its own event loop.

A kernel belongs to one event loop, but programs may use several: they call `asyncio.run` twice, or end right after
their last call. So a store runs its kernel in a thread. Posting a write appends it to a queue. The thread is a daemon;
before the interpreter ends it gets ``exit_seconds`` to finish. Writes that it can't finish by then go to the spool or
are reported as lost.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  (its exit handler must be registered before ours)
import contextlib
import os
import signal
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from keelbolt.errors import StorageClosed
from keelbolt.kernel import Kernel
from keelbolt.kernel.connection import result_from_thread
from keelbolt.state.engine.connection import CLOSED, StoreConnection, logger
from keelbolt.state.engine.host import DetachedTasks, Engine, ask_kernel
from keelbolt.state.engine.writer import StateWriter
from keelbolt.state.engine.writes import StateWrite

uvloop: Any
try:
    import uvloop
except ImportError:  # not available on Windows
    uvloop = None

T = TypeVar("T")

# Write-behind saves are batched, for longer under load: fewer commits disturb the caller's thread less.
GATHER_SECONDS = 0.02
GATHER_BUSY_SECONDS = 0.05
BUSY = 100  # above this batch size the longer time applies

ASLEEP, LATER, NOW = range(3)  # when the thread will drain its inbox


class ThreadHost:
    """Runs the kernel in a thread with its own loop, from the first use until it is closed."""

    def __init__(self, engine: Engine, *, exit_seconds: float) -> None:
        self._engine = engine
        self._exit_seconds = exit_seconds
        self._mutex = threading.RLock()  # reentrant: the SIGTERM handler may interrupt its holder
        self._closed = False
        self._reset()
        _hosts.add(self)

    def _reset(self) -> None:
        self._inbox: deque[StateWrite] = deque()
        self._woken = ASLEEP
        self._gather = GATHER_SECONDS
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._link: StoreConnection | None = None
        self._finished: Future[None] | None = None
        self._begun = DetachedTasks()
        self._asked: set[Future[Any]] = set()
        self._over = False  # the thread has ended
        self.writer: StateWriter | None = None

    def post(self, write: StateWrite) -> None:
        loop = self._started()
        self._inbox.append(write)
        wake = NOW if write.outcome is not None else LATER
        if self._woken < wake:
            self._woken = wake
            with contextlib.suppress(RuntimeError):  # the loop has ended, so the store is closed
                if wake == NOW:
                    loop.call_soon_threadsafe(self._drain)
                else:
                    loop.call_soon_threadsafe(loop.call_later, self._gather, self._drain)
        if self._closed and self._withdrawn(write):  # closed meanwhile: the last drain may be over
            raise StorageClosed(CLOSED)

    async def ask(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        return await result_from_thread(self._submit(self._ask(function)), CLOSED)

    def begin(
        self, function: Callable[[Kernel], Awaitable[T]], *, seconds: float | None = None, background: bool = False
    ) -> Future[T]:
        return self._submit(self._begun.run(partial(self._ask, function), seconds, background=background))

    async def flush(self) -> None:
        if self._thread is not None and not self._closed:
            await result_from_thread(self._submit(self._flush()), CLOSED)

    async def close(self) -> None:
        """Finish all work and end the thread. Concurrent calls wait together."""
        self.abandon()
        finished, thread = self._finished, self._thread
        if finished is not None and thread is not None:
            try:
                await asyncio.shield(asyncio.wrap_future(finished))
            finally:
                await asyncio.to_thread(thread.join)

    def stop(self, until: float) -> None:
        """Finish by this time (monotonic) or give up; callable from any thread, without a loop."""
        loop, thread = self._loop, self._thread
        self.abandon()
        if self._finished is None or loop is None or thread is None:
            return
        try:
            self._finished.result(max(0.0, until - time.monotonic()))
        except Exception:  # noqa: BLE001  (a timeout or any driver error: the program ends anyway)
            logger.warning("the program ends before its state store is closed")
            self._give_up(loop, until)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(loop.stop)
        thread.join(max(0.0, until - time.monotonic()) + 0.1)

    def abandon(self) -> None:
        """Accept no more work and finish in the background."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True  # before the last drain, so that each posted write is drained or withdrawn
            loop = self._loop
            if loop is not None:
                self._finished = asyncio.run_coroutine_threadsafe(self._finish(), loop)
                self._finished.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))

    def forked(self) -> None:
        """Reset the host in a child after fork(): the thread and posted writes belong to the parent."""
        _left_to_the_parent.append((self._loop, self._thread, self._link, self.writer))
        self._mutex = threading.RLock()
        self._reset()

    @property
    def exit_seconds(self) -> float:
        """Time limit for finishing when the interpreter ends."""
        return self._exit_seconds

    # ------------------------------------------------------------------------------------------- in the caller's thread

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None and not self._closed:
            return self._loop
        with self._mutex:
            if self._closed:
                raise StorageClosed(CLOSED)
            if self._loop is None:
                loop = _new_loop()
                self._thread = threading.Thread(target=self._serve, args=(loop,), daemon=True, name="keelbolt-state")
                self._thread.start()
                self._loop = loop
            return self._loop

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._started())
        except (StorageClosed, RuntimeError) as error:
            work.close()
            raise StorageClosed(CLOSED) from error
        self._asked.add(future)
        future.add_done_callback(self._asked.discard)
        if self._over:
            future.cancel()  # the thread that would run it has ended
        return future

    def _withdrawn(self, write: StateWrite) -> bool:
        """Remove the write from the inbox; return False if the thread has already taken it."""
        while True:
            try:
                self._inbox.remove(write)
            except ValueError:
                return False
            except IndexError:  # the inbox changed meanwhile
                continue
            return True

    # -------------------------------------------------------------------------------------------- in the host's thread

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            with contextlib.suppress(Exception):
                loop.run_until_complete(_cancel_all())
                loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            self._over = True
            for future in list(self._asked):
                future.cancel()

    def _engines(self) -> tuple[StoreConnection, StateWriter]:
        if self._link is None or self.writer is None:
            self._link, self.writer = self._engine()
        return self._link, self.writer

    def _drain(self) -> None:
        self._woken = ASLEEP  # first, so that later writes wake the thread again
        _, writer = self._engines()
        inbox = self._inbox
        writes = []
        while inbox:
            writes.append(inbox.popleft())
        self._gather = GATHER_BUSY_SECONDS if len(writes) > BUSY else GATHER_SECONDS
        if writes:
            writer.take(writes)

    async def _ask(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        self._drain()
        link, writer = self._engines()
        return await ask_kernel(link, writer, function)

    async def _flush(self) -> None:
        self._drain()
        _, writer = self._engines()
        await self._begun.finish()
        await writer.settle()
        await writer.recovery.replay()

    async def _finish(self) -> None:
        self._drain()
        link, writer = self._engines()
        await self._begun.close()
        await writer.close()
        try:
            async with asyncio.timeout(self._exit_seconds):
                await link.close()
        except TimeoutError:
            logger.warning("closing the storage timed out; the connection stays open")

    def _give_up(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        """Move the remaining writes to the spool, in the host's thread."""
        done = threading.Event()

        def give_up() -> None:
            try:
                self._drain()
                self._engines()[1].give_up()
            finally:
                done.set()

        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(give_up)
            done.wait(max(1.0, until - time.monotonic()))


async def _cancel_all() -> None:
    """Cancel all remaining tasks."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)


def _new_loop() -> asyncio.AbstractEventLoop:
    return uvloop.new_event_loop() if uvloop is not None else asyncio.new_event_loop()


_hosts: weakref.WeakSet[ThreadHost] = weakref.WeakSet()
_left_to_the_parent: list[Any] = []  # keeps the parent's connections: destroying them in a child would disturb them


def _forked() -> None:
    for host in list(_hosts):
        host.forked()


os.register_at_fork(after_in_child=_forked)


def _finish_at_exit() -> None:
    """Finish pending saves before the interpreter ends, also for stores that were never closed."""
    hosts = list(_hosts)
    now = time.monotonic()
    for host in hosts:
        host.stop(now + host.exit_seconds)
    for host in hosts:
        if host.writer is not None and (line := host.writer.unreported()):
            with contextlib.suppress(OSError, ValueError):  # stderr is closed
                sys.stderr.write(f"keelbolt: {line}\n")


def finish_on_sigterm() -> None:
    """Finish the stores of this process before SIGTERM ends it.

    If the program has installed a handler, it is kept: it is expected to end the interpreter normally. Only the main
    thread can install a handler.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, _frame: object) -> None:
    _finish_at_exit()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


# Runs before the interpreter's executors refuse new work, since opening and closing an engine needs them. Also runs in
# children of multiprocessing.
getattr(threading, "_register_atexit", atexit.register)(_finish_at_exit)
