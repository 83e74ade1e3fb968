"""The kernel under a StateStore, for what sessions keep beside it.

A store may have its kernel in a thread of its own; here it is reached from whatever loop a session lives in.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from holdfast.errors import HoldfastError, InvalidState
from holdfast.state.policy import tell_load_failed, tell_save_failed
from holdfast.state.saving import Saved
from holdfast.state.store import StateStore
from holdfast.storage import Entry, Kernel, LogTopic, Operation

T = TypeVar("T")
Work = Callable[[Kernel], Awaitable[T]]

POLL_SECONDS = 5.0  # a second net below the engine's own safety poll
AGAIN_SECONDS = 1.0


def underlying(store: Any) -> StateStore:
    """The StateStore that keeps the sessions of this one: itself, or the durable part of a hybrid."""
    for found in (store, getattr(store, "durable", None)):
        if isinstance(found, StateStore):
            return found
    kind = type(store).__name__
    raise InvalidState(f"sessions need a holdfast.state.StateStore, which keeps their context and owners, not a {kind}")


class Begun(Generic[T]):
    """Work that goes on whether anybody waits for it or not. Awaiting it waits."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def __await__(self) -> Generator[object, None, T]:
        return asyncio.shield(asyncio.wrap_future(self._future)).__await__()

    def then(self, call: Callable[[Future[T]], None]) -> None:
        """Call this when it is done, in some thread."""
        self._future.add_done_callback(call)


class Ground:
    """What sessions of one store stand on."""

    def __init__(self, store: StateStore) -> None:
        self._desk = store.desk
        self.partition = store.partition

    def save(self, method: str, *operations: Operation, size: int = 0) -> Saved:
        """Hand a write over, in one order with what the store saves. It need not be awaited."""
        return self._desk.save(method, operations, size)

    async def call(self, work: Work[T]) -> T:
        """Do this with the kernel, on its loop, after everything that was saved before."""
        return await self._desk.host.ask(work)

    def begin(self, work: Work[T], method: str) -> Begun[T]:
        """Start this now; it is finished before the store is closed. ``method`` names it where it fails."""
        future = self._desk.host.begin(work)
        future.add_done_callback(lambda done: _tell(done, method))
        return Begun(future)

    async def attempt(self, work: Work[T], otherwise: T, method: str) -> T:
        """`call`, but on a resilient store a failure is only logged, and this is the answer."""
        try:
            return await self.call(work)
        except HoldfastError as error:
            if self._desk.policy == "strict":
                raise
            tell_load_failed(method, None, error)
            return otherwise

    async def next_entries(self, log: str, stream: str, after: int) -> tuple[Entry, ...]:
        """The entries after this one, as soon as there are some; an outage is waited out."""

        async def look(kernel: Kernel) -> tuple[Entry, ...]:
            with kernel.watch(LogTopic(self.partition, log, stream)) as watch:
                while True:
                    page = await kernel.read_log(self.partition, log, stream, after=after)
                    if page.entries:
                        return page.entries
                    await watch.wait(POLL_SECONDS)

        while True:
            try:
                return await self.call(look)
            except HoldfastError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)


def _tell(done: Future[T], method: str) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        if not done.cancelled() and (error := done.exception()) is not None:
            tell_save_failed(method, None, error)
