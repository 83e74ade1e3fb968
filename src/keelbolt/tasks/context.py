"""What a worker sees of its task, and what it can do with it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import CommitRefused, InvalidAgentResponseError, InvalidValue, LeaseLost, TurnEnded
from keelbolt.observability.tracing import carried
from keelbolt.protocol.modes import accepts
from keelbolt.protocol.types import Artifact, Message, Part, TaskState, encode
from keelbolt.storage import new_id
from keelbolt.storage.blobs import BlobSource
from keelbolt.tasks.conversation import Conversation
from keelbolt.tasks.dependencies import Dependencies
from keelbolt.tasks.files import TaskFile, keep_file
from keelbolt.tasks.json import MAX_CHUNK_BYTES, bounded, json_bytes
from keelbolt.tasks.lifecycle import End, Report
from keelbolt.tasks.notes import ArtifactNote, Note
from keelbolt.tasks.record import EXTENSIONS, REQUEST_METADATA
from keelbolt.tasks.steps import Policy, Probe, Steps

if TYPE_CHECKING:
    from keelbolt.tasks.inbox import Steering
    from keelbolt.tasks.run import Run


_MESSAGES = TypeAdapter(list[Message])


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of the message: its bytes, or where to get them."""

    content: bytes | None
    url: str | None
    filename: str | None
    media_type: str | None


class TaskContext:
    """One turn of one task, for the worker that handles it."""

    def __init__(
        self,
        run: Run,
        message: Message,
        history: bytes,
        artifacts: Sequence[bytes],
        rewind: Mapping[str, bytes] | None = None,
        request_context: dict[str, Any] | None = None,
    ) -> None:
        record = run.journal.task.record
        self.message = message
        self.request_context: dict[str, Any] = request_context or {}
        """What middlewares put beside the message. It is never stored: after a takeover it is empty."""
        self.task_id: str = record.task_id
        self.context_id: str = record.context_id
        self.attempt: int = run.journal.claim.attempt
        self._run = run
        self._turn = record.turn
        self._history = history
        self._artifacts = artifacts
        self._rewind = rewind or {}
        self._touched: set[str] = set()
        self._steps = Steps(run)
        self._conversation = Conversation(run.store.kernel, run.partition, self.context_id, run.fence)

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
        """The metadata of the task, which its client sees too."""
        return self._run.journal.task.view.metadata

    @property
    def reference_task_ids(self) -> list[str]:
        return self.message.reference_task_ids or []

    @property
    def message_extensions(self) -> list[str]:
        return self.message.extensions or []

    def accepts(self, mime: str) -> bool:
        """Whether the client takes this media type; a client that named none takes everything."""
        modes = self._turn.accepts
        return not modes or accepts(modes, mime)

    # ------------------------------------------------------------------------------------------ what came before

    @property
    def history(self) -> list[Message]:
        """What was said before this message, oldest first."""
        messages = _MESSAGES.validate_json(b"[%b]" % self._history)
        return [message for message in messages if message.message_id != self.message_id]

    @property
    def previous_artifacts(self) -> list[Artifact]:
        """The artifacts of earlier turns."""
        return [Artifact.model_validate_json(text) for text in self._artifacts]

    @property
    def artifact_ids(self) -> dict[str, bool]:
        """The artifacts of the task so far, those of this turn too; True: it is finished."""
        return {key: artifact.sealed for key, artifact in self._run.journal.task.view.artifacts.items()}

    # --------------------------------------------------------------------------------------------- who and where

    @property
    def principal(self) -> Principal:
        """Who sent the message."""
        return Principal.from_json(self._turn.principal) if self._turn.principal else ANONYMOUS

    @property
    def trace(self) -> dict[str, str] | None:
        """The headers of the trace that the request belongs to, where tracing is on."""
        return carried(self._turn.request)

    @property
    def request_metadata(self) -> dict[str, Any]:
        """The metadata of the request, which stands beside the message."""
        found: dict[str, Any] = self._turn.request.get(REQUEST_METADATA, {})
        return found

    @property
    def extensions(self) -> list[str]:
        """URIs of the extensions that are in use: the agent's card has them, and the client asked for them."""
        found: list[str] = self._turn.request.get(EXTENSIONS, [])
        return found

    @property
    def deps(self) -> Dependencies:
        return self._run.dependencies

    @property
    def is_cancelled(self) -> bool:
        """Whether the client canceled the task. A worker sees it in `shielded` blocks and while it cleans up."""
        return self._run.cancel_requested

    @contextlib.asynccontextmanager
    async def shielded(self, seconds: float | None = None) -> AsyncIterator[None]:
        """A block that a cancel does not stop, and in which all methods work, for up to so many seconds after it.

        Use it for what must not be cut in half, and to clean up after a cancel. None: ``cancel_seconds`` of the
        engine. One block extends the time that a canceled worker has; further ones after the cancel do not.
        """
        run = self._run
        seconds = run.settings.cancel_seconds if seconds is None else seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
            raise InvalidValue(f"a shield lasts a number of seconds that is not negative, not {seconds!r}")
        run.enter_shield(seconds)
        try:
            yield
        finally:
            run.leave_shield()
        await asyncio.sleep(0)  # a cancel that waited is raised here

    @property
    def cancel_metadata(self) -> dict[str, Any]:
        """The metadata of the request that cancelled the task."""
        found: dict[str, Any] = (self._run.journal.task.view.cancel or {}).get("metadata", {})
        return found

    @property
    def turn(self) -> int:
        """The number of this turn: 1 for the message that made the task, one more for each message after it."""
        return self._turn.number

    @property
    def sent_while_working(self) -> bool:
        """Whether the message was sent while the turn before it ran: it can't be the answer to that turn's question."""
        return self._turn.waited

    @property
    def turn_ended(self) -> bool:
        return self._run.ended

    @property
    def inbox(self) -> AsyncIterator[Steering]:
        """What others steer this task with while it runs: ``async for event in ctx.inbox``."""
        return self._run.ear.steering()

    # --------------------------------------------------------------------------------------------- ends of a turn

    async def complete(
        self, text: str | None = None, *, parts: Sequence[Part] = (), artifact_id: str = "final-answer"
    ) -> None:
        """Done; with a text, or parts, those are the artifact."""
        json = [] if text is None else [text_part(text)]
        json += [_encoded(part) for part in parts]
        before = [self._artifact(artifact_id, b",".join(json), last=True)] if json else []
        await self._end(TaskState.completed, before=before)

    async def complete_json(self, data: Any, *, artifact_id: str = "final-answer") -> None:
        """Done, with a JSON artifact."""
        await self._end(TaskState.completed, before=[self._artifact(artifact_id, data_part(data), last=True)])

    async def respond(self, text: str | None = None) -> None:
        """Done; the answer is the message of the status, and there is no artifact."""
        await self._end(TaskState.completed, text)

    async def reply_directly(self, text: str) -> None:
        """Done; who sent the message gets a message back instead of a task (a stream gets the task as always)."""
        await self._end(TaskState.completed, text, direct=True)

    async def fail(self, reason: str, *, data: Any = None) -> None:
        """It did not work, and this is why; ``data`` says it to programs."""
        await self._end(TaskState.failed, reason, data=data)

    async def reject(self, reason: str | None = None, *, data: Any = None) -> None:
        """The agent does not do this; ``data`` says why to programs."""
        await self._end(TaskState.rejected, reason, data=data)

    async def give_up(self, reason: str | None = None) -> None:
        """The work is stopped on purpose: the task is canceled, though nobody asked for that."""
        await self._end(TaskState.canceled, reason)

    async def request_input(self, question: str | None = None, *, data: Any = None) -> None:
        """Ask the user. The turn ends; the answer is the message of the next one, in whatever process."""
        await self._end(TaskState.input_required, question, data=data)

    async def request_auth(
        self,
        details: str | None = None,
        *,
        schemes: Sequence[str] | None = None,
        credentials_hint: str | None = None,
        auth_url: str | None = None,
    ) -> None:
        """Ask the user to authenticate with somebody. The turn ends, as with `request_input`."""
        wanted = {"schemes": list(schemes or ()), "credentialsHint": credentials_hint, "authUrl": auth_url}
        data = {name: value for name, value in wanted.items() if value}
        await self._end(TaskState.auth_required, details, data=data or None)

    async def _end(
        self,
        state: TaskState,
        text: str | None = None,
        *,
        data: Any = None,
        before: Sequence[Note] = (),
        direct: bool = False,
    ) -> None:
        self._check()
        message = None if text is None and data is None else self._say(text, data)
        await self._run.end(End(state, message), before=before, direct=direct)

    # --------------------------------------------------------------------------------------- on the way to the end

    async def send_status(self, message: str | None = None) -> None:
        """Say how far it is. Whoever polls or streams the task sees it."""
        self._check()
        await self._run.journal.move(Report(None if message is None else self._say(message)))

    async def emit_artifact(
        self,
        *,
        artifact_id: str = "answer",
        text: str | None = None,
        data: Any = None,
        file_bytes: bytes | None = None,
        file_url: str | None = None,
        parts: Sequence[Part] | None = None,
        media_type: str | None = None,
        filename: str | None = None,
        name: str | None = None,
        description: str | None = None,
        append: bool = False,
        last_chunk: bool = False,
        metadata: dict[str, Any] | None = None,
        extensions: Sequence[str] | None = None,
    ) -> None:
        """Make an artifact, or with ``append`` a further chunk of it; ``last_chunk`` says that it is finished.

        A chunk is shown once it is on disk, but this does not wait for the disk unless much is waiting already.
        """
        if parts is None:
            given = {"text": text, "data": data, "raw": file_bytes, "url": file_url}
            content = {key: value for key, value in given.items() if value is not None}
            if len(content) != 1:
                raise InvalidAgentResponseError("an artifact is made of one of text, data, file_bytes, file_url, parts")
            json = _part(content, media_type=media_type, filename=filename)
        else:
            json = b",".join([_encoded(part) for part in parts])
        told = {"name": name, "description": description, "metadata": metadata, "extensions": extensions}
        about = {key: value for key, value in told.items() if value is not None}
        await self._emit(self._artifact(artifact_id, json, about, append=append, last=last_chunk), len(json))

    async def emit_text_artifact(
        self, text: str, *, artifact_id: str = "answer", append: bool = False, last_chunk: bool = False
    ) -> None:
        """`emit_artifact` with text."""
        json = text_part(text)
        await self._emit(self._artifact(artifact_id, json, append=append, last=last_chunk), len(json))

    async def emit_data_artifact(
        self,
        data: Any,
        *,
        artifact_id: str = "answer",
        media_type: str = "application/json",
        append: bool = False,
        last_chunk: bool = False,
    ) -> None:
        """`emit_artifact` with JSON."""
        json = _part({"data": data}, media_type=media_type)
        await self._emit(self._artifact(artifact_id, json, append=append, last=last_chunk), len(json))

    async def keep_file(
        self, source: BlobSource, *, media_type: str | None = None, filename: str | None = None
    ) -> TaskFile:
        """Keep a file with the task, too large for an artifact; the server has it at ``path``, for the task's owner."""
        self._check()
        kernel, partition = self._run.store.kernel, self._run.partition
        fence = self._run.fence()
        try:
            return await keep_file(
                kernel, partition, self.task_id, source, *fence, media_type=media_type, filename=filename
            )
        except CommitRefused as refusal:
            raise LeaseLost from refusal

    async def _emit(self, note: ArtifactNote, size: int) -> None:
        self._check()
        await self._run.journal.note(note, size)

    def _artifact(
        self,
        artifact_id: str,
        parts: bytes,
        about: dict[str, Any] | None = None,
        *,
        append: bool = False,
        last: bool = False,
    ) -> ArtifactNote:
        if not isinstance(artifact_id, str) or not artifact_id:
            raise InvalidAgentResponseError("artifact_id is a string that is not empty")
        earlier: bytes | None = None
        if append and artifact_id not in self._touched:
            # The first chunk of this run. What an earlier run of the same turn wrote is not continued: the handler
            # began anew, so the artifact goes back to what it was before the turn.
            earlier = self._rewind.get(artifact_id)
            append = earlier is None and artifact_id in self._run.journal.task.view.artifacts
            if earlier:
                parts = earlier + b"," + parts
        members = b'"artifactId":' + _text(artifact_id)
        if earlier and not about:
            members = self._run.journal.task.view.artifacts[artifact_id].about
        if about:
            members += b"," + json_bytes(about, f"artifact {artifact_id}")[1:-1]
        if len(parts) + len(members) > MAX_CHUNK_BYTES:
            bounded(parts + members, "a chunk of an artifact", MAX_CHUNK_BYTES)
        self._touched.add(artifact_id)
        return ArtifactNote(artifact_id, members, parts, append, last)

    # ----------------------------------------------------------------------------------------------------- steps

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        idempotent: bool = False,
        in_doubt: Policy | None = None,
        probe: Probe | None = None,
    ) -> Any:
        """Do this once: its result is recorded, and returned without doing it again when the turn is repeated.

        A step that began and never reported (its process died) is *in doubt*. What happens then is its policy:
        ``retry`` (the default when it is ``idempotent``), ``verify`` (the ``probe`` finds out; the default when there
        is one), or ``ask`` (the client is asked; the default otherwise). Results are JSON.
        """
        self._check()
        return await self._steps.step(name, function, args, idempotent=idempotent, in_doubt=in_doubt, probe=probe)

    def idempotency_key(self, step: str) -> str:
        """A key for calls to others that is the same in every attempt of this turn."""
        return f"{self.task_id}/{self._turn.number}/{step}"

    async def sleep(self, seconds: float) -> None:
        """Wait, without holding a process: after a long sleep `handle` begins anew and comes back to here."""
        self._check()
        await self._steps.sleep(seconds)

    # ----------------------------------------------------------------------------------------------- conversation

    async def load_context(self) -> Any:
        """What is kept about this conversation, whose tasks share a context id; None at first."""
        self._check_cancel()
        return await self._conversation.load()

    async def update_context(self, value: Any | Callable[[Any], Any | Awaitable[Any]]) -> Any:
        """Keep this about the conversation.

        Given a function, it is called with what is kept now, and again if somebody else was first. Given a value,
        ConcurrencyError is raised if what is kept changed since `load_context`.
        """
        self._check_cancel()
        return await self._conversation.update(value)

    # -------------------------------------------------------------------------------------------------- internals

    def _check(self) -> None:
        current = self._run.journal.task.record.turn.number
        if self._run.ended or self._run.ending or current != self._turn.number:
            raise TurnEnded
        self._check_cancel()

    def _check_cancel(self) -> None:
        if self._run.cancel_requested and not self._run.shielded and not self._run.ended:
            raise asyncio.CancelledError("the task was canceled")

    def _say(self, text: str | None, data: Any = None) -> bytes:
        parts = [] if text is None else [text_part(text)]
        if data is not None:
            parts.append(data_part(data))
        return agent_message(self.task_id, self.context_id, bounded(b",".join(parts), "the message"))


def agent_message(task_id: str, context_id: str, parts: bytes) -> bytes:
    """A new message of the agent, as JSON."""
    return b'{"messageId":"%b","role":"ROLE_AGENT","parts":[%b],"taskId":%b,"contextId":%b}' % (
        new_id().encode(),
        parts,
        to_json(task_id),
        to_json(context_id),
    )


def text_part(text: str) -> bytes:
    return b'{"text":%b}' % _text(text)


def data_part(data: Any) -> bytes:
    return b'{"data":%b}' % json_bytes(data, "the data")


def _text(text: str) -> bytes:
    if type(text) is not str:
        raise InvalidAgentResponseError(f"text is a string, not {type(text).__name__}")
    return json_bytes(text, "the text")


def _part(content: dict[str, Any], *, media_type: str | None = None, filename: str | None = None) -> bytes:
    ((kind, value),) = content.items()
    if kind == "data":
        json = json_bytes(value, "the data")
    elif kind != "raw":
        json = _text(value)
    elif isinstance(value, bytes | bytearray | memoryview):
        json = b'"%b"' % base64.b64encode(value)
    else:
        raise InvalidAgentResponseError(f"file_bytes are bytes, not {type(value).__name__}")
    more = b""
    for name, text in ((b"filename", filename), (b"mediaType", media_type)):
        if text is not None:
            more += b',"%b":%b' % (name, _text(text))
    return b'{"%b":%b%b}' % (kind.encode(), json, more)


def _encoded(part: Part) -> bytes:
    if not isinstance(part, Part):
        raise InvalidAgentResponseError(f"parts are Parts, not {type(part).__name__}")
    json_bytes([part.data, part.metadata], "a part")
    try:
        return encode(part)
    except ValueError as error:
        raise InvalidAgentResponseError(f"a part is not JSON: {str(error).splitlines()[0][:200]}") from None
