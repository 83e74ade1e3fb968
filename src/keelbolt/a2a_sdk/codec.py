"""Converts between the SDK's protobuf messages and the stored JSON; both are A2A 1.0, so nothing is lost."""

from __future__ import annotations

from typing import Any

from a2a.types.a2a_pb2 import ListTasksResponse, StreamResponse, Task
from a2a.types.a2a_pb2 import TaskState as _States
from google.protobuf.json_format import MessageToDict, Parse
from google.protobuf.message import Message as Protobuf
from pydantic_core import to_json

from keelbolt.protocol.types import TaskState

Event = Any  # the SDK's union: Task, Message, TaskStatusUpdateEvent or TaskArtifactUpdateEvent


def to_dict(message: Protobuf) -> dict[str, Any]:
    """Convert a message to JSON with camelCase names."""
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
    """Return the event in a stream response."""
    response = Parse(text, StreamResponse())
    return getattr(response, response.WhichOneof("payload"))


def state_of(task: Task) -> TaskState:
    """Return the state of a task; submitted if it has none."""
    return state_named(task.status.state) or TaskState.submitted


def state_named(number: int) -> TaskState | None:
    """Return the state with this protobuf number; None if it is not set."""
    return TaskState(_States.Name(number)) if number else None
