"""Access to the storage of a StateStore for session data, and the stored runs of tasks.

A store may run its kernel in its own thread; sessions access it from their event loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from keelbolt.errors import CommitRefused, InvalidRequest, InvalidState, KeelboltError, StateStoreError, StateTimeout
from keelbolt.kernel import Claim, Entry, Operation, Put, Query, Record, Scope, new_id
from keelbolt.state.codec import decode, encode
from keelbolt.state.engine.connection import tell_load_failed, tell_save_failed
from keelbolt.state.engine.writes import ErasureGuard, Saved
from keelbolt.state.families import RUNS
from keelbolt.state.names import joined, name
from keelbolt.state.store import StateStore

T = TypeVar("T")
Work = Callable[[Scope], Awaitable[T]]

POLL_SECONDS = 5.0  # in addition to the engine's safety poll
AGAIN_SECONDS = 1.0


def underlying(store: Any) -> StateStore:
    """Return the StateStore that keeps the sessions: the store itself, or the durable part of a hybrid."""
    for found in (store, getattr(store, "durable", None)):
        if isinstance(found, StateStore):
            return found
    kind = type(store).__name__
    raise InvalidState(f"sessions need a keelbolt.state.StateStore, which stores their context and owners, not {kind}")


class DetachedWork(Generic[T]):
    """Detached work. Awaiting it raises its error only if it is ``strict``."""

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
        """Call this when the work is done, in any thread, with the error or None."""
        self._future.add_done_callback(lambda done: call(_error(done)))


class SessionStorage:
    """Storage access of the sessions of one store."""

    def __init__(self, store: StateStore) -> None:
        self._desk = store.desk
        self.tenant = store.tenant
        self.types = store.types
        self.resilient = store.policy == "resilient"

    def save(self, method: str, *operations: Operation, lives: tuple[ErasureGuard, ...] = ()) -> Saved:
        """Save in order with the store's other saves. The result need not be awaited."""
        return self._desk.save(method, operations, 0, lives=lives)

    def session(self, session_id: str) -> ErasureGuard:
        """Return the `ErasureGuard` of the session in this process."""
        return self._desk.session(session_id)

    def note(self, session_id: str) -> tuple[Operation, ...]:
        """Return the write that lists the session, if it is due."""
        return self._desk.note(session_id=session_id)[1]

    async def call(self, work: Work[T]) -> T:
        """Run the work on the kernel's loop, after all earlier saves."""
        seconds = self._desk.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(work)
        except TimeoutError:
            raise StateTimeout(f"the storage did not respond within {seconds:g} seconds") from None

    def begin(self, work: Work[T], method: str) -> DetachedWork[T]:
        """Start the work; it is finished before the store is closed. ``method`` names it in logged errors."""
        begun = DetachedWork(self._desk.host.begin(self._desk.scoped(work)), strict=not self.resilient)
        begun.then(lambda error: None if error is None else tell_save_failed(method, None, error))
        return begun

    async def attempt(self, work: Work[T], otherwise: T, method: str) -> T:
        """Like `call`, but on a resilient store log an error and return ``otherwise``."""
        try:
            return await self.call(work)
        except KeelboltError as error:
            if not self.resilient:
                raise
            tell_load_failed(method, None, error)
            return otherwise

    async def next_entries(self, log: str, stream: str, after: int) -> tuple[Entry, ...]:
        """Wait for entries after this seq and return them. Outages are retried."""

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
    """Return whether the same work may succeed when the storage is available again."""
    return error.retryable or not isinstance(error, InvalidRequest | CommitRefused | StateStoreError)


# ----------------------------------------------------------------------------------------------------------------- runs


@dataclass(frozen=True, slots=True)
class SessionRun:
    """A task that a process runs. ``claim`` is set only in the process that holds it."""

    tenant: str
    session_id: str
    task_id: str
    task_type: str
    strategy: str
    claim: Claim | None = None

    @property
    def key(self) -> str:
        """The key of its record, its work item and its inbox."""
        return joined(self.session_id, self.task_id)

    @property
    def checks(self) -> tuple[Operation, ...]:
        """The check that no other process has taken over the task."""
        return (self.claim.fenced(),) if self.claim is not None else ()


_STORED = ("tenant", "session_id", "task_id", "task_type", "strategy")


def dump_run(run: SessionRun) -> Put:
    """Return the write that stores the run."""
    body = encode({part: getattr(run, part) for part in _STORED})
    return Put(RUNS, run.key, body, {"session": name(run.session_id), "arrived": new_id()})


def load_run(record: Record, claim: Claim | None = None) -> SessionRun:
    """Return the run of a stored record."""
    return SessionRun(**decode(record.body), claim=claim)


async def list_runs(scope: Scope, session_id: str) -> Sequence[SessionRun]:
    """Return the tasks of a session that a process runs, or that lost their process."""
    query = Query(RUNS, {"session": name(session_id)}, order="arrived")
    return [load_run(record) async for record in scope.scan(query)]
