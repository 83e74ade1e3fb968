"""Requests to a running task. They go through the task's inbox, in order, to the process that holds the task.

Every entry is recorded in the task's own log before it takes effect, with its sender and reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic_core import from_json

from keelbolt.kernel import Append, Draft, Enqueue, Entry, Operation
from keelbolt.tasks.families import INBOX, QUEUE
from keelbolt.tasks.json import json_bytes
from keelbolt.tasks.notes import OtherNote

SteeringKind = Literal["inject", "redirect", "pause", "resume", "prioritise"]
STEERING: tuple[str, ...] = get_args(SteeringKind)


@dataclass(frozen=True, slots=True)
class SteeringRequest:
    """A request to a running task: its kind, sender, reason and payload."""

    kind: str
    source: str = ""
    reason: str = ""
    payload: dict[str, Any] = field(default_factory=dict)


def post(
    task_id: str, kind: str, body: dict[str, Any], *, lane: str = "", priority: int = 0, max_attempts: int = 5
) -> list[Operation]:
    """Return the operations that add an entry to the inbox, and make sure that a process reads it."""
    data = json_bytes({name: value for name, value in body.items() if value}, "the inbox entry")
    return [
        Append(INBOX, task_id, (Draft(kind, data),)),
        Enqueue(QUEUE, task_id, lane=lane, priority=priority, max_attempts=max_attempts),
    ]


def noted(entry: Entry) -> OtherNote:
    """Return the note that records an inbox entry in the task's log."""
    return OtherNote("steer", {**from_json(entry.data), "inbox": entry.seq, "kind": entry.kind})


def cancelled(seq: int, body: Mapping[str, Any]) -> OtherNote:
    """Return the note of a cancel that did not go through the inbox. ``seq`` is the last entry of the inbox."""
    given = from_json(json_bytes({name: value for name, value in body.items() if value}, "the cancel request"))
    return OtherNote("steer", {**given, "inbox": seq, "kind": "cancel"})


def steering(note: OtherNote) -> SteeringRequest:
    body = note.body
    return SteeringRequest(body["kind"], body.get("source", ""), body.get("reason", ""), body.get("payload", {}))
