"""The stored context of a session: several processes change it, each change based on the last one.

Runs on the kernel's loop. A change is a function of the context; if another process commits first, the change is
applied again to the new context. So an update replaces only the parts that it names, a merge never loses a result, and
a patch is checked for divergence against the context that it is merged into.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from keelbolt.errors import CommitRefused
from keelbolt.kernel import Insert, Operation, Patch, Record, Replace, Scope
from keelbolt.state.codec import decode, encode
from keelbolt.state.engine.writes import ErasureGuard, refused_for_good
from keelbolt.state.families import CONTEXTS
from keelbolt.state.names import name
from keelbolt.state.sessions.context import SessionContext
from keelbolt.state.types.planner import BackgroundTaskResult

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """The result of a change: a new context (None: unchanged), the change in waiting patches, and additional writes."""

    answer: T
    context: SessionContext | None = None
    pending: int = 0
    operations: tuple[Operation, ...] = ()


Change = Callable[[SessionContext, int], Step[T]]


class StoredContext:
    """The context of one session, as this process last read it from the store.

    ``note`` returns the operations that list the session, if they are due: erasure and retention find it by its note.
    """

    def __init__(self, session_id: str, life: ErasureGuard, note: Callable[[], tuple[Operation, ...]]) -> None:
        self._key = name(session_id)
        self._life = life
        self._note = note
        self._turn = asyncio.Lock()
        self._version = 0
        self._seen = False
        self._owed: deque[Change[Any]] = deque()
        self.context = SessionContext()
        self.pending = 0

    async def read(self, scope: Scope) -> SessionContext:
        """Return the current context."""
        async with self._turn:
            await self._read(scope)
            await self._catch_up(scope)
            return self.context

    async def change(self, scope: Scope, change: Change[T]) -> tuple[SessionContext, T]:
        """Apply the change to the current context. Changes are applied in call order."""
        async with self._turn:
            if not self._seen:
                await self._read(scope)
            await self._catch_up(scope)
            answer = await self._apply(scope, change)
            return self.context, answer

    @property
    def owing(self) -> bool:
        """Whether changes are not stored yet."""
        return bool(self._owed)

    def owe(self, change: Change[Any]) -> None:
        """Queue a change to be stored before the next one, because the storage was unavailable."""
        self._owed.append(change)

    async def _catch_up(self, scope: Scope) -> None:
        while self._owed:
            await self._apply(scope, self._owed[0])
            self._owed.popleft()

    async def _apply(self, scope: Scope, change: Change[T]) -> T:
        while True:
            step = change(self.context, self.pending)
            try:
                await self._commit(scope, step)
            except CommitRefused as refusal:
                if self._life.goes_on(refusal):
                    continue
                if (final := refused_for_good("update_context", refusal)) is not None:
                    raise final from refusal
                if getattr(refusal.check, "collection", None) != CONTEXTS:
                    raise
                await self._read(scope)
            else:
                return step.answer

    async def _commit(self, scope: Scope, step: Step[Any]) -> None:
        context, pending = step.context or self.context, self.pending + step.pending
        here = {"pending": pending}
        own: tuple[Operation, ...] = ()
        if self._version == 0 and (step.context is not None or step.pending):
            own = (Insert(CONTEXTS, self._key, dump_context(context), here),)
        elif step.context is not None:
            own = (Replace(CONTEXTS, self._key, self._version, dump_context(context), here),)
        elif step.pending:
            own = (Patch(CONTEXTS, self._key, here, self._version),)
        if not own and not step.operations:
            return
        notes = self._note()
        try:
            receipt = await scope.commit(self._life.check, *own, *step.operations, *notes)
        except BaseException:
            if notes:
                self._life.not_noted()
            raise
        self._life.written()
        if own:
            self._version = receipt.version(CONTEXTS, self._key)
            self.context, self.pending = context, pending

    async def _read(self, scope: Scope) -> None:
        self.take(await scope.get(CONTEXTS, self._key))

    def take(self, record: Record | None) -> None:
        """Use the context of this record."""
        self._seen = True
        if record is None:
            self._version, self.context, self.pending = 0, SessionContext(), 0
        elif record.version != self._version:
            pending = record.fields.get("pending")
            self.pending = pending if isinstance(pending, int) else 0
            self._version, self.context = record.version, load_context(record.body)


def dump_context(context: SessionContext) -> bytes:
    """Return the stored form of the context."""
    parts = {field.name: getattr(context, field.name) for field in fields(context)}
    parts["background_results"] = [_dump(result) for result in context.background_results.values()]
    parts["background_result"] = _dump(context.background_result) if context.background_result else None
    return encode(parts)


def load_context(body: bytes) -> SessionContext:
    """Return the context of a stored form."""
    parts = decode(body)
    results = [BackgroundTaskResult(**result) for result in parts.pop("background_results")]
    last = parts.pop("background_result")
    return SessionContext(
        **parts,
        background_results={result.task_id: result for result in results},
        background_result=BackgroundTaskResult(**last) if last else None,
    )


def _dump(result: BackgroundTaskResult) -> dict[str, Any]:
    return {field.name: getattr(result, field.name) for field in fields(result)}
