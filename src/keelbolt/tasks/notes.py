"""The entries of a task's log, one note each.

    message    a message of the history, as JSON
    status     {"status": …}: the wire's status update without the ids, which are the same for the whole log
    said       the same, whose message belongs to the history too
    artifact   {"artifact": …, "append": …, "lastChunk": …}: the wire's artifact update without the ids
    metadata   an object merged into the task's metadata
    attempt    a worker started (or took over) the turn
    step       a durable step started or ended
    steer      an entry of the inbox
    state      {"value": …}: the state of the task, which the worker committed with the end of its turn
    cleanup    {"due": …}: whether the worker of a canceled task must still be called to clean up
    error      {"type": …, "message": …, "traceback": …}: an exception of the worker; only operators see it
    touch      only a new version

Clients stream status, said and artifact; their bytes go to the wire as they are stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr
from pydantic_core import from_json, to_json

from keelbolt.kernel import Append, Draft, Entry
from keelbolt.observability.logs import described
from keelbolt.protocol.types import TaskState
from keelbolt.tasks.families import EVENTS

WIRE_KINDS = frozenset({"status", "said", "artifact"})
CLEANUP_KINDS = frozenset({"attempt", "step", "steer", "cleanup", "error"})
"""Kinds that may be written after the end of a task, while its worker cleans up: no client sees them."""

_FOLDER = str(Path(__file__).parent)

OtherKind = Literal["metadata", "attempt", "step", "steer", "state", "cleanup", "error", "touch"]


class MessageNote(Struct, frozen=True, gc=False):
    """A message of the history."""

    data: bytes

    @property
    def kind(self) -> str:
        return "message"


class StatusNote(Struct, frozen=True, gc=False):
    """A new status. ``said`` is its message if that belongs to the history."""

    state: TaskState
    status: bytes
    said: bytes | None = None
    metadata: bytes | None = None

    @classmethod
    def of(
        cls,
        state: TaskState,
        now: str,
        message: bytes | None = None,
        *,
        said: bool = False,
        metadata: bytes | None = None,
    ) -> StatusNote:
        words = b',"message":' + message if message is not None else b""
        status = b'{"state":"%b","timestamp":"%b"%b}' % (state.encode(), now.encode(), words)
        return cls(state, status, message if said else None, metadata)

    @property
    def kind(self) -> str:
        return "status" if self.said is None else "said"

    @property
    def data(self) -> bytes:
        more = b',"metadata":' + self.metadata if self.metadata is not None else b""
        return b'{"status":%b%b}' % (self.status, more)


class ArtifactNote(Struct, frozen=True, gc=False):
    """Parts of an artifact. ``about`` holds its other members as JSON, starting with ``"artifactId":"x"``."""

    artifact_id: str
    about: bytes
    parts: bytes  # comma-separated JSON values
    append: bool = False
    last: bool = False
    metadata: bytes | None = None

    @property
    def kind(self) -> str:
        return "artifact"

    @property
    def data(self) -> bytes:
        more = b',"append":true' if self.append else b""
        if self.last:
            more += b',"lastChunk":true'
        if self.metadata is not None:
            more += b',"metadata":' + self.metadata
        return b'{"artifact":{%b,"parts":[%b]}%b}' % (self.about, self.parts, more)


class OtherNote(Struct, frozen=True, gc=False):
    """A note that clients do not get in a stream. ``data`` is its body as JSON, encoded once."""

    kind: OtherKind
    body: dict[str, Any]
    data: bytes = b""

    def __post_init__(self) -> None:
        if not self.data:
            force_setattr(self, "data", to_json(self.body))


def error_note(error: BaseException) -> OtherNote:
    """Return the note of an exception for operators; callers never get it. Its traceback starts at the worker."""
    return OtherNote("error", described(error, skip=_FOLDER))


Note = MessageNote | StatusNote | ArtifactNote | OtherNote


def draft(note: Note) -> Draft:
    return Draft(note.kind, note.data)


def append_notes(task_id: str, notes: Iterable[Note]) -> Append:
    """Return the operation that appends these notes to the task's log."""
    return Append(EVENTS, task_id, tuple([draft(note) for note in notes]))


def read_note(entry: Entry) -> Note:
    """Return the note of this entry."""
    match entry.kind:
        case "message":
            return MessageNote(entry.data)
        case "status" | "said":
            body = from_json(entry.data)
            status = body["status"]
            said = to_json(status["message"]) if entry.kind == "said" and "message" in status else None
            metadata = to_json(body["metadata"]) if "metadata" in body else None
            return StatusNote(TaskState(status["state"]), to_json(status), said, metadata)
        case "artifact":
            return _read_artifact(from_json(entry.data))
        case _:
            return OtherNote(entry.kind, from_json(entry.data), entry.data)  # type: ignore[arg-type]


def _read_artifact(body: dict[str, Any]) -> ArtifactNote:
    artifact = body["artifact"]
    parts = to_json(artifact.pop("parts"))[1:-1]
    metadata = to_json(body["metadata"]) if "metadata" in body else None
    return ArtifactNote(
        artifact["artifactId"],
        to_json(artifact)[1:-1],
        parts,
        body.get("append", False),
        body.get("lastChunk", False),
        metadata,
    )
