"""The small record of a task: its id, its status and its current turn. Everything else is in its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from pydantic_core import from_json, to_json

from keelbolt.errors import InvalidTaskRequest
from keelbolt.kernel import Insert, Record, Replace
from keelbolt.protocol.types import TERMINAL, TaskState
from keelbolt.tasks.families import TASKS
from keelbolt.tasks.lifecycle import Decision
from keelbolt.tasks.notes import StatusNote
from keelbolt.tasks.parts import agent_message, text_part

REQUEST_METADATA = "keelbolt.metadata"
EXTENSIONS = "keelbolt.extensions"
STREAMED = "keelbolt.streamed"
"""Keys in a turn's request: the request metadata, the extensions in use, and whether the client streams."""


ENDED = tuple(sorted(state.name for state in TERMINAL))
"""The names of the terminal states, as in a task's record."""


class CurrentTurn(Struct):
    """The current turn: the id of its message, and the data that came with it."""

    number: int
    message_id: str
    accepts: list[str] = []
    request: dict[str, Any] = {}
    principal: dict[str, Any] = {}
    asked: str | None = None  # the step in doubt that the client is asked about
    waited: bool = False  # the message was sent while the previous turn ran

    def json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"number": self.number, "messageId": self.message_id}
        for name in ("accepts", "request", "principal", "asked", "waited"):
            if value := getattr(self, name):
                body[name] = value
        return body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> CurrentTurn:
        return cls(
            body["number"],
            body["messageId"],
            body.get("accepts", []),
            body.get("request", {}),
            body.get("principal", {}),
            body.get("asked"),
            body.get("waited", False),
        )


class TaskRecord(Struct):
    """``version`` is that of the record; the version of the task is the head of its log."""

    task_id: str
    context_id: str
    state: TaskState
    status: bytes
    updated: int  # microseconds since 1970: when the status changed
    created: int
    turn: CurrentTurn
    metadata: dict[str, Any] = {}
    direct: bool = False  # the task is answered with a message, not a task
    version: int = 0
    push: tuple[str, ...] = ()  # the push configs of the task, by their ids

    def message(self, text: str) -> bytes:
        """Return a new message of the agent in this task, as JSON."""
        return agent_message(self.task_id, self.context_id, text_part(text))

    def stand(self, decision: Decision, now: int, metadata: dict[str, Any]) -> None:
        """Apply the decision to the record."""
        note = decision.notes[-1]
        assert isinstance(note, StatusNote)
        self.state, self.status, self.updated, self.metadata = decision.state, note.status, now, metadata

    def body(self) -> bytes:
        more = b""
        if self.metadata:
            more += b',"metadata":' + to_json(self.metadata)
        if self.direct:
            more += b',"direct":true'
        return b'{"contextId":%b,"created":%d,"updated":%d,"status":%b,"turn":%b%b}' % (
            to_json(self.context_id),
            self.created,
            self.updated,
            self.status,
            to_json(self.turn.json()),
            more,
        )

    def fields(self) -> dict[str, str | int]:
        found: dict[str, str | int] = {"state": self.state._name_, "context": self.context_id, "updated": self.updated}
        if self.push:
            found["push"] = push_field(self.push)
        return found

    def insert(self) -> Insert:
        return Insert(TASKS, self.task_id, self.body(), self.fields())

    def replace(self) -> Replace:
        return Replace(TASKS, self.task_id, self.version, self.body(), self.fields())

    @classmethod
    def of(cls, stored: Record) -> TaskRecord:
        body = from_json(stored.body)
        return cls(
            stored.key,
            body["contextId"],
            TaskState(body["status"]["state"]),
            to_json(body["status"]),
            body["updated"],
            body["created"],
            CurrentTurn.from_json(body["turn"]),
            body.get("metadata", {}),
            body.get("direct", False),
            stored.version,
            push_of(stored),
        )


def push_field(config_ids: Iterable[str]) -> str:
    """Return the record field for push config ids. A field, not the body, so that it can change alone."""
    return to_json(list(config_ids)).decode()


def push_of(stored: Record) -> tuple[str, ...]:
    text = stored.fields.get("push")
    return tuple(from_json(text)) if isinstance(text, str) else ()


# ------------------------------------------------------------------------------------------------------------------ ids


MAX_CONTEXT_ID = 1000  # characters
MAX_TASK_ID = 200  # characters


def check_context_id(context_id: str) -> None:
    """Raise InvalidTaskRequest unless this is a context id: 1 to 1000 characters of valid text without NUL.

    Clients choose context ids, so any other character is allowed: tabs, emoji with joiners, control characters.
    """
    if not isinstance(context_id, str) or not 0 < len(context_id) <= MAX_CONTEXT_ID or not _is_text(context_id):
        raise InvalidTaskRequest(f"a context id must be 1 to {MAX_CONTEXT_ID} characters of valid text without NUL")


def is_task_id(task_id: str) -> bool:
    """Return whether this can be a task id. Servers choose task ids, so they are short and printable."""
    return isinstance(task_id, str) and 0 < len(task_id) <= MAX_TASK_ID and task_id.isprintable()


def _is_text(text: str) -> bool:
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
