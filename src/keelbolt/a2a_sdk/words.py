"""Between the SDK's protobuf messages and the JSON that is stored: both are A2A 1.0, so nothing is lost."""

from __future__ import annotations

from typing import Any

from a2a.types.a2a_pb2 import ListTasksResponse, StreamResponse, Task
from a2a.types.a2a_pb2 import TaskState as _States
from google.protobuf.json_format import MessageToDict, Parse
from google.protobuf.message import Message as Protobuf
from pydantic_core import to_json

from keelbolt.protocol.types import TaskState

Event = Any  # the SDK's own union: Task, Message, TaskStatusUpdateEvent or TaskArtifactUpdateEvent


def to_dict(message: Protobuf) -> dict[str, Any]:
    """A message as JSON, in camelCase."""
    found: dict[str, Any] = MessageToDict(message)
    return found


def encoded(message: Protobuf) -> bytes:
    return to_json(to_dict(message))


def task_of(text: bytes) -> Task:
    found: Task = Parse(text, Task())
    return found


def tasks_of(text: bytes) -> ListTasksResponse:
    found: ListTasksResponse = Parse(text, ListTasksResponse())
    return found


def event_of(text: bytes) -> Event:
    """The event in a stream's answer."""
    response = Parse(text, StreamResponse())
    return getattr(response, response.WhichOneof("payload"))


def state_of(task: Task) -> TaskState:
    """The state of a task; one without a state was just submitted."""
    return state_named(task.status.state) or TaskState.submitted


def state_named(number: int) -> TaskState | None:
    """The state with this number in the protobuf; None: none is given."""
    return TaskState(_States.Name(number)) if number else None
