"""The lifecycle of a task: maps a state and a command to a decision or a typed error. Pure; the docs draw it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from keelbolt.errors import (
    IllegalTransition,
    TaskNotAcceptingMessagesError,
    TaskNotCancelableError,
    TaskTerminalStateError,
)
from keelbolt.protocol.types import PAUSED, TERMINAL, TaskState
from keelbolt.tasks.notes import MessageNote, Note, StatusNote

_WORKING_ENDS = {
    TaskState.completed: "ctx.complete() / ctx.respond() / ctx.reply_directly()",
    TaskState.failed: "ctx.fail() / unhandled exception / no attempt left",
    TaskState.canceled: "cancel",
    TaskState.rejected: "ctx.reject()",
    TaskState.input_required: "ctx.request_input()",
    TaskState.auth_required: "ctx.request_auth()",
}
_PASSED_ON = "a cancel is passed to another agent"
_PAUSED_ENDS = {
    TaskState.submitted: f"the user sends a follow-up message / {_PASSED_ON}",
    TaskState.canceled: "cancel while it waits for the user",
    TaskState.failed: "given up while it waits for the user",
}

TRANSITIONS: Mapping[TaskState, Mapping[TaskState, str]] = MappingProxyType(
    {
        TaskState.submitted: {
            TaskState.working: "a worker picks it up",
            TaskState.canceled: "cancel before a worker picks it up",
            TaskState.failed: "no worker could start it",
        },
        TaskState.working: _WORKING_ENDS,
        TaskState.input_required: _PAUSED_ENDS,
        TaskState.auth_required: {**_PAUSED_ENDS, TaskState.submitted: f"the user sends credentials / {_PASSED_ON}"},
        TaskState.completed: {},
        TaskState.failed: {},
        TaskState.canceled: {},
        TaskState.rejected: {},
    }
)
"""From each state to each state that can follow it, with the cause of the transition."""


class WorkerStart(Struct, frozen=True, gc=False):
    """A worker starts the task."""


class ProgressReport(Struct, frozen=True, gc=False):
    """The worker reports progress; the task stays working."""

    message: bytes | None = None


class End(Struct, frozen=True, gc=False):
    """The turn ends in a terminal or a paused state. The message belongs to the history."""

    state: TaskState
    message: bytes | None = None
    metadata: bytes | None = None


class UserAnswer(Struct, frozen=True, gc=False):
    """The user answers a paused task; it is submitted again."""

    message: bytes


class ClientCancel(Struct, frozen=True, gc=False):
    """The client cancels the task."""

    message: bytes | None = None


class PassOnCancel(Struct, frozen=True, gc=False):
    """The client cancels a task that waits with another agent's question; the worker first cancels the other task."""


Command = WorkerStart | ProgressReport | End | UserAnswer | ClientCancel | PassOnCancel


class Decision(Struct, frozen=True, gc=False):
    """The new state, and the notes for the task's log."""

    state: TaskState
    notes: tuple[Note, ...]


def apply(task_id: str, state: TaskState, command: Command, *, now: str) -> Decision:
    """Return the effect of this command on a task in this state. ``now`` is the timestamp of the new status."""
    match command:
        case WorkerStart():
            check_transition(task_id, state, TaskState.working)
            return Decision(TaskState.working, (StatusNote.of(TaskState.working, now),))
        case ProgressReport():
            if state is not TaskState.working:
                check_transition(task_id, state, TaskState.working)
            return Decision(TaskState.working, (StatusNote.of(TaskState.working, now, command.message),))
        case End():
            check_transition(task_id, state, command.state)
            note = StatusNote.of(command.state, now, command.message, said=True, metadata=command.metadata)
            return Decision(command.state, (note,))
        case UserAnswer():
            if state not in PAUSED:
                raise (TaskTerminalStateError if state in TERMINAL else TaskNotAcceptingMessagesError)(task_id, state)
            return Decision(
                TaskState.submitted, (MessageNote(command.message), StatusNote.of(TaskState.submitted, now))
            )
        case PassOnCancel():
            check_transition(task_id, state, TaskState.submitted)
            return Decision(TaskState.submitted, (StatusNote.of(TaskState.submitted, now),))
        case ClientCancel():
            if state in TERMINAL:
                raise TaskNotCancelableError(task_id, state)
            note = StatusNote.of(TaskState.canceled, now, command.message, said=True)
            return Decision(TaskState.canceled, (note,))


def check_transition(task_id: str, state: TaskState, to: TaskState) -> None:
    """Raise unless the transition is allowed."""
    if to not in TRANSITIONS[state]:
        if state in TERMINAL:
            raise TaskTerminalStateError(task_id, state)
        raise IllegalTransition(state, to)
