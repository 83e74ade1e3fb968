"""The session's context in this process, the patches merged into it, and the patches that wait for approval."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from keelbolt.errors import CommitRefused, KeelboltError, SessionLimitReached
from keelbolt.kernel import Delete, Insert, Operation, Query, Record, Scope, new_id
from keelbolt.state.codec import decode, encode
from keelbolt.state.engine.connection import tell_save_failed
from keelbolt.state.families import PATCHES
from keelbolt.state.names import joined, name
from keelbolt.state.sessions.context import (
    ContextPatch,
    MergeStrategy,
    PendingContextPatch,
    SessionContext,
    consumed,
    has_diverged,
    hash_context,
    judged,
    merged,
    result_of,
    storable,
    updated,
)
from keelbolt.state.sessions.storage import SessionStorage, may_come_back
from keelbolt.state.sessions.stored_context import Change, Step, StoredContext
from keelbolt.state.sessions.updates import SessionUpdates
from keelbolt.state.types.tasks import UpdateType

T = TypeVar("T")


class LiveContext:
    """The context of one session in this process, which may hold live objects, and the patches that wait for approval.

    Every change is also made to the stored context, which can't hold live objects.
    """

    def __init__(
        self, session_id: str, storage: SessionStorage, updates: SessionUpdates, *, max_pending_patches: int
    ) -> None:
        self._session_id = session_id
        self._storage = storage
        self._updates = updates
        self._max_pending = max_pending_patches
        self._stored = StoredContext(session_id, storage.session(session_id), partial(storage.note, session_id))
        self._unsaved = 0
        self._counting = threading.Lock()  # changes complete in the kernel's thread
        self._context = SessionContext()
        self._pending: dict[str, PendingContextPatch] = {}

    @property
    def current(self) -> SessionContext:
        """The context as this process knows it."""
        return self._context

    @property
    def pending(self) -> dict[str, PendingContextPatch]:
        """The patches that wait for approval, by id, as a copy."""
        return dict(self._pending)

    # ------------------------------------------------------------------------------------------------------ the context

    def update(self, **parts: Any) -> Awaitable[Any]:
        """Replace these parts at once and start saving the change; awaiting the result waits for the save."""
        given = {part: value for part, value in parts.items() if value is not None}
        self._context = updated(self._context, **given)
        kept, digest = {part: storable(value) for part, value in given.items()}, self._context.context_hash

        def step(context: SessionContext, _: int) -> Step[None]:
            new = updated(context, **kept)
            new.context_hash = digest if "llm_context" in kept else _hash_before(context)
            return Step(None, context=new)

        return self._begin(step)

    async def refresh(self) -> SessionContext:
        """Load the changes of other processes and return the context."""
        stored = await self._storage.attempt(self._stored.read, None, "refresh_context")
        return self._context if stored is None else self._adopt(stored)

    async def consume(self, task_ids: Iterable[str]) -> int:
        """Remove the results of these tasks and return their number."""
        wanted = {task_id for task_id in task_ids if task_id}

        def step(context: SessionContext, _: int) -> Step[int]:
            new, gone = consumed(context, wanted)
            return Step(gone, context=new if gone else None)

        return await self._change_or_owe(step) if wanted else 0

    # ---------------------------------------------------------------------------------------------------------- patches

    async def apply(
        self,
        patch: ContextPatch,
        strategy: MergeStrategy,
        *,
        payload: Any | None = None,
        group_id: str | None = None,
        checks: tuple[Operation, ...] = (),
    ) -> str | None:
        """Merge a patch or let it wait for approval, if these checks hold. Return its approval id if it waits."""
        patch = ContextPatch.model_validate(patch.model_dump())  # also accepts penguiflow's class
        if strategy == MergeStrategy.HUMAN_GATED:
            return await self._let_wait(patch, payload, group_id, checks)

        def step(context: SessionContext, _: int) -> Step[bool]:
            marked = judged(patch, context)
            result = result_of(marked, payload=storable(payload), group_id=group_id)
            new = merged(context, result, strategy)
            return Step(has_diverged(patch, context), context=new, operations=checks)

        if await self._change_or_owe(step):
            self._warn(patch.task_id)
        return None

    async def approve(self, patch_id: str, strategy: MergeStrategy | None = None) -> bool:
        """Merge a waiting patch; return False if it does not wait (any more)."""
        record = await self._find(patch_id)
        if record is None:
            return False
        waiting = load_patch(record)
        result = result_of(waiting.patch, payload=waiting.payload, group_id=waiting.group_id)

        def step(context: SessionContext, _: int) -> Step[bool]:
            new = merged(context, result, strategy or MergeStrategy.APPEND)
            gone = (Delete(PATCHES, record.key, record.version),)
            return Step(has_diverged(waiting.patch, context), context=new, pending=-1, operations=gone)

        try:
            diverged = await self._change(step)
        except CommitRefused:  # another caller decided first
            return False
        finally:
            self._pending.pop(patch_id, None)
        if diverged:
            self._warn(waiting.task_id)
        body = "Background results applied to the conversation."
        self._updates.notify(waiting.task_id, "info", "Context updated", body)
        return True

    async def reject(self, patch_id: str, *, trace_id: str | None = None) -> bool:
        """Discard a waiting patch; return False if it does not wait (any more)."""
        record = await self._find(patch_id)
        if record is None:
            return False
        try:
            gone = (Delete(PATCHES, record.key, record.version),)
            await self._change(lambda _context, _pending: Step(None, pending=-1, operations=gone))
        except CommitRefused:
            return False
        finally:
            self._pending.pop(patch_id, None)
        task_id = load_patch(record).task_id
        body = "Background results were not applied."
        self._updates.notify(task_id, "warning", "Context patch rejected", body, trace_id=trace_id)
        return True

    async def load(self, scope: Scope) -> Sequence[PendingContextPatch]:
        """Read the context and return the waiting patches; runs on the kernel's loop."""
        await self._stored.read(scope)
        query = Query(PATCHES, {"session": name(self._session_id)}, order="arrived")
        page = await scope.find(query, limit=max(self._stored.pending, 1))
        return [load_patch(record) for record in page.records]

    def restore(self, waiting: Sequence[PendingContextPatch]) -> None:
        """Use the context and patches that `load` read."""
        self._adopt(self._stored.context)
        self._pending = {patch.patch_id: patch for patch in waiting}

    async def _let_wait(
        self, patch: ContextPatch, payload: Any, group_id: str | None, checks: tuple[Operation, ...]
    ) -> str:
        patch_id, limit = secrets.token_hex(8), self._max_pending
        kept = storable(payload)
        key, session = joined(self._session_id, patch_id), name(self._session_id)

        def step(context: SessionContext, pending: int) -> Step[PendingContextPatch]:
            if limit and pending >= limit:
                raise SessionLimitReached("pending_patch_limit_exceeded", limit)
            waiting = PendingContextPatch(
                patch_id, patch.task_id, judged(patch, context), MergeStrategy.HUMAN_GATED, kept, group_id
            )
            write = Insert(PATCHES, key, dump_patch(waiting), {"session": session, "arrived": new_id()})
            return Step(waiting, pending=1, operations=(*checks, write))

        waiting = self._pending[patch_id] = await self._change(step)
        content = {
            "kind": "context_patch",
            "patch_id": patch_id,
            "task_id": patch.task_id,
            "digest": patch.digest,
            "diverged": waiting.patch.context_diverged,
            "prompt": "Apply background results to the conversation?",
            "options": ["approve", "reject"],
        }
        self._updates.report(patch.task_id, UpdateType.CHECKPOINT, content)
        return patch_id

    async def _find(self, patch_id: str) -> Record | None:
        key = joined(self._session_id, patch_id)
        return await self._storage.call(lambda scope: scope.get(PATCHES, key))

    def _warn(self, task_id: str) -> None:
        body = "Background results were produced from an older context."
        self._updates.notify(task_id, "warning", "Context changed", body)

    # ----------------------------------------------------------------------------------------------------------- saving

    def _begin(self, change: Change[Any]) -> Awaitable[Any]:
        with self._counting:
            self._unsaved += 1
        begun = self._storage.begin(lambda scope: self._stored.change(scope, change), "update_context")
        begun.then(lambda error: self._begun(change, error))
        return begun

    def _begun(self, change: Change[Any], error: KeelboltError | None) -> None:
        if error is not None and self._storage.resilient and may_come_back(error):
            self._stored.owe(change)
        with self._counting:
            self._unsaved -= 1

    async def _change(self, change: Change[T]) -> T:
        """Change the stored context and update this one."""
        context, answer = await self._storage.call(lambda scope: self._stored.change(scope, change))
        self._adopt(context)
        return answer

    async def _change_or_owe(self, change: Change[T]) -> T:
        """Call `_change`. If a resilient store is unavailable, change the local context and store the change later."""
        try:
            return await self._change(change)
        except KeelboltError as error:
            if not self._storage.resilient or not may_come_back(error):
                raise
            tell_save_failed("merge_context", None, error, kept=True)
            self._stored.owe(change)
            step = change(self._context, 0)
            self._context = step.context or self._context
            return step.answer

    def _adopt(self, stored: SessionContext) -> SessionContext:
        """Use the stored context, but keep the live objects of parts that are equal."""
        if not self._unsaved and not self._stored.owing:
            mine = self._context
            parts = {part: _living(getattr(mine, part), getattr(stored, part)) for part in _LIVING}
            self._context = replace(stored, **parts)
        return self._context


_LIVING = ("llm_context", "tool_context", "memory", "artifacts")


def _living(mine: Any, stored: Any) -> Any:
    return mine if storable(mine) == stored else stored


def _hash_before(context: SessionContext) -> str | None:
    return context.context_hash if context.version else hash_context(context.llm_context)


def dump_patch(waiting: PendingContextPatch) -> bytes:
    """Return the stored form of a patch."""
    parts: Mapping[str, Any] = {
        "patch_id": waiting.patch_id,
        "task_id": waiting.task_id,
        "patch": {field: storable(value) for field, value in waiting.patch.model_dump().items()},
        "strategy": waiting.strategy.value,
        "payload": waiting.payload,
        "group_id": waiting.group_id,
        "created_at": waiting.created_at,
    }
    return encode(parts)


def load_patch(record: Record) -> PendingContextPatch:
    """Return the patch of a stored form."""
    parts = decode(record.body)
    patch, strategy = ContextPatch.model_validate(parts.pop("patch")), MergeStrategy(parts.pop("strategy"))
    return PendingContextPatch(patch=patch, strategy=strategy, **parts)
