"""The storage under a StateStore, for what sessions keep beside it.

A store may have its kernel in a thread of its own; sessions reach it from their own event loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from keelbolt.errors import CommitRefused, InvalidRequest, InvalidState, KeelboltError, StateStoreError, StateTimeout
from keelbolt.state.lives import Life
from keelbolt.state.policy import tell_load_failed, tell_save_failed
from keelbolt.state.saving import Saved
from keelbolt.state.store import StateStore
from keelbolt.storage import Entry, Operation, Scope

T = TypeVar("T")
Work = Callable[[Scope], Awaitable[T]]

POLL_SECONDS = 5.0  # a second net below the engine's own safety poll
AGAIN_SECONDS = 1.0


def underlying(store: Any) -> StateStore:
    """The StateStore that keeps the sessions of this one: itself, or the durable part of a hybrid."""
    for found in (store, getattr(store, "durable", None)):
        if isinstance(found, StateStore):
            return found
    kind = type(store).__name__
    raise InvalidState(f"sessions need a keelbolt.state.StateStore, which keeps their context and owners, not a {kind}")


class Begun(Generic[T]):
    """Work that goes on, whether anybody waits for it or not. If it is ``strict``, who waits is told of its failure."""

    def __init__(self, future: Future[T], *, strict: bool) -> None:
        self._future = future
        self._strict = strict

    def __await__(self) -> Generator[object, None, T | None]:
        try:
            return (yield from asyncio.shield(asyncio.wrap_future(self._future)).__await__())
        except KeelboltError:
            if self._strict:
                raise
            return None

    def then(self, call: Callable[[KeelboltError | None], None]) -> None:
        """Call this when it is done, in some thread, with the error if there was one."""
        self._future.add_done_callback(lambda done: call(_error(done)))


class Ground:
    """What sessions of one store stand on."""

    def __init__(self, store: StateStore) -> None:
        self._desk = store.desk
        self.tenant = store.tenant
        self.types = store.types
        self.resilient = store.policy == "resilient"

    def save(self, method: str, *operations: Operation, lives: tuple[Life, ...] = ()) -> Saved:
        """Hand a write over, in one order with what the store saves. It need not be awaited."""
        return self._desk.save(method, operations, 0, lives=lives)

    def session(self, session_id: str) -> Life:
        """The session as this process uses it."""
        return self._desk.session(session_id)

    async def call(self, work: Work[T]) -> T:
        """Do this on the kernel's loop, after everything that was saved before."""
        seconds = self._desk.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(work)
        except TimeoutError:
            raise StateTimeout(f"the storage did not answer within {seconds:g} seconds") from None

    def begin(self, work: Work[T], method: str) -> Begun[T]:
        """Start this now; it is finished before the store is closed. ``method`` names it where it fails."""
        begun = Begun(self._desk.host.begin(self._desk.scoped(work)), strict=not self.resilient)
        begun.then(lambda error: None if error is None else tell_save_failed(method, None, error))
        return begun

    async def attempt(self, work: Work[T], otherwise: T, method: str) -> T:
        """`call`, but on a resilient store a failure is only logged, and this is the answer."""
        try:
            return await self.call(work)
        except KeelboltError as error:
            if not self.resilient:
                raise
            tell_load_failed(method, None, error)
            return otherwise

    async def next_entries(self, log: str, stream: str, after: int) -> tuple[Entry, ...]:
        """The entries after this one, as soon as there are some; an outage is waited out."""

        async def look(scope: Scope) -> tuple[Entry, ...]:
            with scope.watch(log, stream) as watch:
                while True:
                    page = await scope.read_log(log, stream, after=after)
                    if page.entries:
                        return page.entries
                    await watch.wait(POLL_SECONDS)

        while True:
            try:
                return await self._ask(look)
            except KeelboltError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)

    async def _ask(self, work: Work[T]) -> T:
        return await self._desk.host.ask(self._desk.scoped(work))


def _error(done: Future[T]) -> KeelboltError | None:
    error = None if done.cancelled() else done.exception()
    return error if isinstance(error, KeelboltError) else None


def may_come_back(error: KeelboltError) -> bool:
    """Whether the same work may succeed when the storage can be used again."""
    return error.retryable or not isinstance(error, InvalidRequest | CommitRefused | StateStoreError)
