"""One JSON value per conversation, stored with a version so that concurrent updates are not lost."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic_core import from_json

from keelbolt.errors import CommitRefused, ConcurrencyError, LeaseLost
from keelbolt.kernel import Fence, Insert, Operation, Put, Replace, Scope
from keelbolt.tasks.families import CONTEXTS
from keelbolt.tasks.json import bounded, json_bytes

TRIES = 1000


class Conversation:
    """The value that workers store for a context."""

    def __init__(self, scope: Scope, context_id: str, fence: Callable[[], Sequence[Fence]]) -> None:
        self._fence = fence  # a worker that lost its task can't write the conversation either
        self._scope = scope
        self._context_id = context_id
        self._version: int | None = None  # the version that was loaded; 0: there was no record

    async def load(self) -> Any:
        record = await self._scope.get(CONTEXTS, self._context_id)
        self._version = record.version if record is not None else 0
        return from_json(record.body) if record is not None else None

    async def update(self, value: Any | Callable[[Any], Any | Awaitable[Any]]) -> Any:
        if not callable(value):
            await self._write(value)
            return value
        for _ in range(TRIES):
            changed = value(await self.load())
            if inspect.isawaitable(changed):
                changed = await changed
            try:
                await self._write(changed)
            except ConcurrencyError:
                continue
            return changed
        raise ConcurrencyError(self._context_id)

    async def _write(self, value: Any) -> None:
        body = bounded(json_bytes(value, "the context"), "the context")
        operation: Operation
        match self._version:
            case None:
                operation = Put(CONTEXTS, self._context_id, body)
            case 0:
                operation = Insert(CONTEXTS, self._context_id, body)
            case version:
                operation = Replace(CONTEXTS, self._context_id, version, body)
        expected = self._version
        try:
            receipt = await self._scope.commit(*self._fence(), operation)
        except CommitRefused as refusal:
            if refusal.reason == "fence":
                raise LeaseLost from None
            found = refusal.found if isinstance(refusal.found, int) else None
            raise ConcurrencyError(self._context_id, expected=expected, found=found) from None
        self._version = receipt.version(CONTEXTS, self._context_id)
