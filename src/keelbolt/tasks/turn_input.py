"""The input of a turn: the message, the history before it, and its sender."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import CommitRefused, ConcurrencyError, LeaseLost, TurnEnded
from keelbolt.kernel import Fence, Insert, Operation, Put, Replace, Scope
from keelbolt.observability.tracing import carried
from keelbolt.protocol.requests import accepts
from keelbolt.protocol.types import Artifact, Message, Part
from keelbolt.tasks.families import CONTEXTS
from keelbolt.tasks.parts import agent_message, bounded, data_part, json_bytes, text_part
from keelbolt.tasks.record import EXTENSIONS, REQUEST_METADATA, STREAMED
from keelbolt.tasks.steps import Steps
from keelbolt.tasks.worker import Dependencies

if TYPE_CHECKING:
    from keelbolt.tasks.inbox import SteeringRequest
    from keelbolt.tasks.run import TaskRun

_MESSAGES = TypeAdapter(list[Message])


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of the message: its bytes, or its URL."""

    content: bytes | None
    url: str | None
    filename: str | None
    media_type: str | None


class TaskInput:
    """The part of `TaskContext` that reads."""

    def __init__(
        self,
        run: TaskRun,
        message: Message,
        history: bytes,
        artifacts: Sequence[bytes],
        rewind: Mapping[str, bytes] | None = None,
        request_context: dict[str, Any] | None = None,
    ) -> None:
        record = run.journal.task.record
        self.message = message
        self.request_context: dict[str, Any] = request_context or {}
        """Values that middlewares added to the request. Never stored: empty after a takeover."""
        self.task_id: str = record.task_id
        self.context_id: str = record.context_id
        self.attempt: int = run.journal.claim.attempt
        self._run = run
        self._turn = record.turn
        self._history = history
        self._artifacts = artifacts
        self._rewind = dict(rewind or {})
        self._touched: set[str] = set()
        self._steps = Steps(run)

    @cached_property
    def _conversation(self) -> Conversation:
        return Conversation(self._run.scope, self.context_id, self._run.fence)

    # ------------------------------------------------------------------------------------------------ the message

    @property
    def message_id(self) -> str:
        return self.message.message_id

    @property
    def user_text(self) -> str:
        """The text parts of the message, joined by line feeds."""
        return self.message.text

    @property
    def parts(self) -> list[Part]:
        return self.message.parts

    @property
    def files(self) -> list[FileInfo]:
        """The file parts of the message."""
        return [
            FileInfo(part.raw, part.url, part.filename, part.media_type)
            for part in self.message.parts
            if part.kind in ("raw", "url")
        ]

    @property
    def data_parts(self) -> list[Any]:
        """The JSON parts of the message."""
        return [part.data for part in self.message.parts if part.kind == "data"]

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the message."""
        return self.message.metadata or {}

    @property
    def task_metadata(self) -> dict[str, Any]:
        """The metadata of the task, which the client sees, too."""
        return self._run.journal.task.view.metadata

    @property
    def reference_task_ids(self) -> list[str]:
        return self.message.reference_task_ids or []

    @property
    def message_extensions(self) -> list[str]:
        return self.message.extensions or []

    def accepts(self, mime: str) -> bool:
        """Return whether the client accepts this media type; a client that named none accepts every type."""
        modes = self._turn.accepts
        return not modes or accepts(modes, mime)

    # ------------------------------------------------------------------------------------- history and artifacts

    @property
    def history(self) -> list[Message]:
        """The messages before this one, oldest first."""
        messages = _MESSAGES.validate_json(b"[%b]" % self._history)
        return [message for message in messages if message.message_id != self.message_id]

    @property
    def previous_artifacts(self) -> list[Artifact]:
        """The artifacts of earlier turns."""
        return [Artifact.model_validate_json(text) for text in self._artifacts]

    @property
    def artifact_ids(self) -> dict[str, bool]:
        """The artifacts of the task so far, including this turn; True: the artifact is finished."""
        return {key: artifact.sealed for key, artifact in self._run.journal.task.view.artifacts.items()}

    # ---------------------------------------------------------------------------------------- sender and request

    @property
    def principal(self) -> Principal:
        """The sender of the message."""
        return Principal.from_json(self._turn.principal) if self._turn.principal else ANONYMOUS

    @property
    def trace(self) -> dict[str, str] | None:
        """The trace headers of the request; None without a trace."""
        return carried(self._turn.request)

    @property
    def request_metadata(self) -> dict[str, Any]:
        """The metadata of the request, outside the message."""
        found: dict[str, Any] = self._turn.request.get(REQUEST_METADATA, {})
        return found

    @property
    def extensions(self) -> list[str]:
        """URIs of the extensions in use: declared in the agent's card, and requested by the client."""
        found: list[str] = self._turn.request.get(EXTENSIONS, [])
        return found

    @property
    def is_streamed(self) -> bool:
        """Whether the client sent the message to get a stream. Other clients may still follow the task."""
        return self._turn.request.get(STREAMED, False) is True

    @property
    def deps(self) -> Dependencies:
        return self._run.dependencies

    @property
    def is_cancelled(self) -> bool:
        """Whether the client canceled the task. A worker can see True in `shielded` blocks and while it cleans up."""
        return self._run.cancel_requested

    async def cancelled(self) -> None:
        """Wait until the client cancels the task or the turn ends, also in `shielded` blocks."""
        await self._run.ear.cancelled()

    @property
    def cancel_metadata(self) -> dict[str, Any]:
        """The metadata of the cancel request."""
        found: dict[str, Any] = (self._run.journal.task.view.cancel or {}).get("metadata", {})
        return found

    @property
    def turn(self) -> int:
        """The number of this turn: 1 for the message that created the task, one more for each message after it."""
        return self._turn.number

    @property
    def replaying(self) -> bool:
        """Whether this run repeats an earlier run of the turn and has recorded steps left to replay."""
        return self._steps.replaying

    @property
    def sent_while_working(self) -> bool:
        """Whether the message was sent while the previous turn ran: it can't be the answer to that turn's question."""
        return self._turn.waited

    @property
    def turn_ended(self) -> bool:
        return self._run.ended

    @property
    def inbox(self) -> AsyncIterator[SteeringRequest]:
        """Steering of this task while it runs: ``async for event in ctx.inbox``."""
        return self._run.ear.steering()

    # -------------------------------------------------------------------------------------------------- internals

    def _check(self) -> None:
        current = self._run.journal.task.record.turn.number
        if self._run.ended or self._run.ending or current != self._turn.number:
            raise TurnEnded
        self._check_cancel()

    def _check_cancel(self) -> None:
        if not self.replaying:
            self._run.check_cancel()

    def _say(self, text: str | None, data: Any = None) -> bytes:
        parts = [] if text is None else [text_part(text)]
        if data is not None:
            parts.append(data_part(data))
        return agent_message(self.task_id, self.context_id, bounded(b",".join(parts), "the message"))


# --------------------------------------------------------------------------------------------------------- conversation


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
