"""A kernel for callers in any thread and any event loop, used by the adapters of other frameworks.

Frameworks create their stores in synchronous code and call them from several event loops and threads. A kernel belongs
to one loop. So a connection by URL runs its kernel in a thread with its own event loop, which all connections of this
process to the same URL share; the kernel opens at the first call. A connection to an open kernel uses that kernel's
loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError as CancelledCall
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from keelbolt.errors import InvalidRequest, StorageBroken, StorageClosed
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.records import Collection
from keelbolt.kernel.urls import open_storage

try:
    import uvloop
except ImportError:  # Windows
    uvloop = None  # type: ignore[assignment, unused-ignore]

T = TypeVar("T")

_CLOSED = "this connection is closed; create the object again"
EXIT_SECONDS = 5.0  # limit for closing one storage at the end of the interpreter

logger = logging.getLogger("keelbolt.kernel")


class KernelConnection:
    """Calls functions with a kernel, in that kernel's loop. ``families`` are declared before the first call."""

    def __init__(self, storage: str | Kernel | KernelConnection, families: Sequence[Collection]) -> None:
        """``storage`` is a URL, an open kernel, or another connection whose kernel is shared."""
        self._families = tuple(families)
        self._closed = False
        self._shared: _Thread | _Loop
        if isinstance(storage, KernelConnection):
            self._shared = storage._shared  # noqa: SLF001
            self._shared.retain()
        else:
            self._shared = _Loop(storage) if isinstance(storage, Kernel) else _Thread.of(storage)

    async def call(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        """Call the function with the kernel and return its result."""
        loop = self._loop()
        if loop is asyncio.get_running_loop():
            return await self._call(function)
        return await result_from_thread(self._submit(function, loop), _CLOSED)

    def call_sync(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        """`call`, for synchronous callers. Raise InvalidRequest in the kernel's loop, which it would block."""
        loop = self._loop()
        with contextlib.suppress(RuntimeError):  # no loop runs in this thread
            if asyncio.get_running_loop() is loop:
                raise InvalidRequest(
                    "a synchronous call in the event loop of the storage would block it; use the async method, or "
                    "open the adapter with a URL"
                )
        try:
            return self._submit(function, loop).result()
        except CancelledCall:
            raise StorageClosed(_CLOSED) from None  # `close` has cancelled the call

    async def aclose(self) -> None:
        """Close this connection; the last connection to a URL closes its kernel. A second close does nothing."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """`aclose`, for synchronous callers."""
        if not self._closed:
            self._closed = True
            self._shared.release()

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise StorageClosed(_CLOSED)
        return self._shared.loop()

    def _submit(self, function: Callable[[Kernel], Awaitable[T]], loop: asyncio.AbstractEventLoop) -> Future[T]:
        call = self._call(function)
        try:
            future = asyncio.run_coroutine_threadsafe(call, loop)
        except RuntimeError:  # another thread has closed the connection, and with it the loop
            call.close()
            raise StorageClosed(_CLOSED) from None
        if self._closed:
            future.cancel()  # the loop may have ended, and would never run it
        return future

    async def _call(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        kernel = await self._shared.kernel(self._families)
        try:
            return await function(kernel)
        except StorageBroken:
            await self._shared.drop(kernel)
            raise


async def result_from_thread(future: Future[T], closed: str) -> T:
    """Wait for a call in another thread's loop. Raise StorageClosed with this text if that thread cancelled it.

    Canceling the caller cancels the call, and raises CancelledError as usual.
    """
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise StorageClosed(closed) from None


class ConnectionOwner:
    """An object that owns a connection. Close it with ``with``, ``async with``, `close` or `aclose`."""

    _connection: KernelConnection

    def close(self) -> None:
        """Close the connection that a URL opened. A second close does nothing."""
        self._connection.close()

    async def aclose(self) -> None:
        """`close`, for asynchronous callers."""
        await self._connection.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncConnectionOwner:
    """An object that owns a connection, for asynchronous callers only."""

    _connection: KernelConnection

    async def close(self) -> None:
        """Close the connection that a URL opened. A second close does nothing."""
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


class _Loop:
    """An open kernel and the loop in which it was opened."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._declared: set[str] = set()
        try:
            self._running = asyncio.get_running_loop()
        except RuntimeError:
            raise InvalidRequest(
                "create the adapter in the event loop that opened this storage, or pass the storage's URL"
            ) from None

    def loop(self) -> asyncio.AbstractEventLoop:
        return self._running

    async def kernel(self, families: Sequence[Collection]) -> Kernel:
        if not self._declared.issuperset(_names(families)):
            await self._kernel.declare(*families)
            self._declared.update(_names(families))
        return self._kernel

    async def drop(self, kernel: Kernel) -> None:
        """Do nothing: the kernel's owner opens another one."""

    def retain(self) -> None:
        """Do nothing: the kernel's owner closes it."""

    def release(self) -> None:
        """Do nothing: the kernel's owner closes it."""


class _Thread:
    """A thread with an event loop in which the kernel of one URL is open."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url
        self._key = key
        self._users = 0
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._running: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._kernel: Kernel | None = None
        self._declared: set[str] = set()
        self._opening: asyncio.Lock | None = None

    @classmethod
    def of(cls, url: str) -> _Thread:
        """Return the thread of this URL and count one more connection. Each connection to ``memory:`` gets its own."""
        open_storage(url)  # raises here if the URL is wrong, instead of at the first call
        key = None if url.partition(":")[0] == "memory" else url
        with _lock:
            found = _threads.get(key) if key is not None else None
            if found is None:
                found = cls(url, key)
                _threads[key if key is not None else f"memory {id(found)}"] = found
            found._users += 1
            return found

    def loop(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():  # in a child process after fork(), the thread belongs to the parent
            _left_to_the_parent.append((self._running, self._thread, self._kernel))
            self._reset()
        running = self._running
        if running is not None:
            return running
        with self._mutex:
            if self._running is None:
                loop = uvloop.new_event_loop() if uvloop is not None else asyncio.new_event_loop()
                self._thread = threading.Thread(target=loop.run_forever, daemon=True, name="keelbolt-storage")
                self._thread.start()
                self._running = loop
            return self._running

    async def kernel(self, families: Sequence[Collection]) -> Kernel:
        kernel = self._kernel
        if kernel is not None and self._declared.issuperset(_names(families)):
            return kernel
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._kernel is None:
                kernel = open_storage(self._url, declare=families)
                await kernel.open()
                self._kernel, self._declared = kernel, set(_names(families))
            elif not self._declared.issuperset(_names(families)):
                await self._kernel.declare(*families)
                self._declared.update(_names(families))
            return self._kernel

    async def drop(self, kernel: Kernel) -> None:
        """Close a kernel that can no longer be used, unless a newer one is open; the next call opens another one."""
        if kernel is self._kernel:
            self._kernel = None
            with contextlib.suppress(Exception):
                await kernel.close()

    def retain(self) -> None:
        with _lock:
            self._users += 1

    def release(self) -> None:
        with _lock:
            self._users -= 1
            if self._users:
                return
            for key, thread in list(_threads.items()):
                if thread is self:
                    del _threads[key]
        self.stop()

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Close the kernel and end the thread."""
        loop, thread = self._running, self._thread
        if loop is None or thread is None or self._pid != os.getpid():
            return
        self._running = self._thread = None
        try:
            asyncio.run_coroutine_threadsafe(self._close(), loop).result(timeout_seconds)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout_seconds)
            if not thread.is_alive():
                loop.close()

    async def _close(self) -> None:
        """Close the kernel, and cancel calls of other threads that still use it; they would wait forever."""
        kernel, self._kernel = self._kernel, None
        try:
            if kernel is not None:
                await kernel.close()
        finally:
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)


def _names(families: Sequence[Collection]) -> list[str]:
    return [family.name for family in families]


_threads: dict[str, _Thread] = {}
_lock = threading.Lock()
_left_to_the_parent: list[object] = []  # kept alive: destroying these connections in a child would disturb the parent


def _forked() -> None:
    global _lock  # noqa: PLW0603  (its holder may be a thread that does not exist in the child)
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def _close_at_exit() -> None:
    for thread in list(_threads.values()):
        try:
            thread.stop(EXIT_SECONDS)
        except Exception as error:  # noqa: BLE001  (a driver may raise any error; the program ends regardless)
            logger.warning("the program exits before its storage was closed: %s", error)


# Run before the interpreter's executors refuse new work, since closing an engine needs them.
getattr(threading, "_register_atexit", atexit.register)(_close_at_exit)
