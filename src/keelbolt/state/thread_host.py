"""A kernel in a thread with a loop of its own.

A kernel belongs to one event loop, and programs come and go with theirs: `asyncio.run` twice, a command that ends
right after its last call. So a store gives its kernel a thread. A write is handed over by appending it to a list. The
thread is a daemon; before the interpreter ends it gets ``exit_seconds`` to finish. Writes that it can't finish by then
go to the spool or are reported as lost.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  (what it does at the end must be registered before ours)
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
from keelbolt.state.host import Begun, Engine, ask_kernel
from keelbolt.state.link import CLOSED, Link
from keelbolt.state.policy import logger
from keelbolt.state.writer import Writer
from keelbolt.state.writes import Write
from keelbolt.storage import Kernel

uvloop: Any
try:
    import uvloop
except ImportError:  # there is none for Windows
    uvloop = None

T = TypeVar("T")

# Writes behind are gathered, and for longer under load: fewer commits disturb the caller's thread less.
GATHER_SECONDS = 0.02
GATHER_BUSY_SECONDS = 0.05
BUSY = 100  # writes that came together

ASLEEP, LATER, NOW = range(3)  # when the thread will look into its inbox


class ThreadHost:
    """In a thread with a loop of its own, from the first use until it is closed."""

    def __init__(self, engine: Engine, *, exit_seconds: float) -> None:
        self._engine = engine
        self._exit_seconds = exit_seconds
        self._mutex = threading.RLock()  # reentrant: the handler of SIGTERM may interrupt its holder
        self._closed = False
        self._reset()
        _hosts.add(self)

    def _reset(self) -> None:
        self._inbox: deque[Write] = deque()
        self._woken = ASLEEP
        self._gather = GATHER_SECONDS
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._finished: Future[None] | None = None
        self._begun = Begun()
        self._asked: set[Future[Any]] = set()
        self._over = False  # the thread has ended
        self.writer: Writer | None = None

    def post(self, write: Write) -> None:
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
        if self._closed and self._withdrawn(write):  # closed since it was looked at: the last drain may be over
            raise StorageClosed(CLOSED)

    async def ask(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        return await self._answer(self._submit(self._ask(function)))

    def begin(self, function: Callable[[Kernel], Awaitable[T]], *, seconds: float | None = None) -> Future[T]:
        return self._submit(self._begun.run(partial(self._ask, function), seconds))

    async def flush(self) -> None:
        if self._thread is not None and not self._closed:
            await self._answer(self._submit(self._flush()))

    async def close(self) -> None:
        """Finish, and end the thread. Whoever closes while another does waits with it."""
        self.abandon()
        finished, thread = self._finished, self._thread
        if finished is not None and thread is not None:
            try:
                await asyncio.shield(asyncio.wrap_future(finished))
            finally:
                await asyncio.to_thread(thread.join)

    def stop(self, until: float) -> None:
        """From any thread, without a loop: finish by this moment, or leave it."""
        loop, thread = self._loop, self._thread
        self.abandon()
        if self._finished is None or loop is None or thread is None:
            return
        try:
            self._finished.result(max(0.0, until - time.monotonic()))
        except Exception:  # noqa: BLE001  (too late, or whatever a driver raises: the program ends all the same)
            logger.warning("the program ends before the storage of its state was closed")
            self._give_up(loop, until)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(loop.stop)
        thread.join(max(0.0, until - time.monotonic()) + 0.1)

    def abandon(self) -> None:
        """Take nothing more and finish, without anybody waiting."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True  # before the last drain, so that what is posted is drained or withdrawn
            loop = self._loop
            if loop is not None:
                self._finished = asyncio.run_coroutine_threadsafe(self._finish(), loop)
                self._finished.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))

    def forked(self) -> None:
        """In a child after fork(): the thread, and what was posted, are the parent's."""
        _left_to_the_parent.append((self._loop, self._thread, self._link, self.writer))
        self._mutex = threading.RLock()
        self._reset()

    @property
    def exit_seconds(self) -> float:
        """How long the end of the interpreter may take."""
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
            future.cancel()  # nobody would do it
        return future

    async def _answer(self, future: Future[T]) -> T:
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise StorageClosed(CLOSED) from None  # the thread ended before it answered

    def _withdrawn(self, write: Write) -> bool:
        """Whether the write was not taken by the thread, and never will be."""
        while True:
            try:
                self._inbox.remove(write)
            except ValueError:
                return False
            except IndexError:  # something else was taken meanwhile
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

    def _engines(self) -> tuple[Link, Writer]:
        if self._link is None or self.writer is None:
            self._link, self.writer = self._engine()
        return self._link, self.writer

    def _drain(self) -> None:
        self._woken = ASLEEP  # first, so that a write from here on wakes the thread again
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
        await self._begun.finish()
        await writer.close()
        try:
            async with asyncio.timeout(self._exit_seconds):
                await link.close()
        except TimeoutError:
            logger.warning("the storage could not be closed in time; it was left as it is")

    def _give_up(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        """What is left goes to the spool, in the thread to which it belongs."""
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
    """What still waits for something waits in vain."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)


def _new_loop() -> asyncio.AbstractEventLoop:
    return uvloop.new_event_loop() if uvloop is not None else asyncio.new_event_loop()


_hosts: weakref.WeakSet[ThreadHost] = weakref.WeakSet()
_left_to_the_parent: list[Any] = []  # destroying its connections in a child would disturb them


def _forked() -> None:
    for host in list(_hosts):
        host.forked()


os.register_at_fork(after_in_child=_forked)


def _finish_at_exit() -> None:
    """Save what was called before the interpreter ends, also for stores that were never closed."""
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

    A handler that the program has installed is left alone: it is expected to end the interpreter in the usual way.
    Only the main thread can install a handler.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, _frame: object) -> None:
    _finish_at_exit()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


# Before the executors of the interpreter refuse new work, since opening and closing an engine needs them. Children of
# multiprocessing call it too.
getattr(threading, "_register_atexit", atexit.register)(_finish_at_exit)
