"""Create a new task from a point in another task's log. The old task does not change."""

from __future__ import annotations

from pydantic_core import from_json

from keelbolt.errors import InvalidTaskRequest, LogTrimmed, TaskNotFoundError, UnsupportedOperationError
from keelbolt.kernel import new_id
from keelbolt.protocol.types import Message, Role
from keelbolt.tasks.families import EVENTS
from keelbolt.tasks.notes import ArtifactNote, MessageNote, Note, OtherNote, StatusNote, read_note
from keelbolt.tasks.stored_tasks import StoredTask


async def forked(task: StoredTask, seq: int) -> tuple[Message, list[Note]]:
    """Return the message of a fork (the user's last up to ``seq``), and the notes before it that the fork keeps."""
    if not 1 <= seq <= task.version:
        raise InvalidTaskRequest(f"seq must be from 1 to {task.version}, the last entry of this task's log, not {seq}")
    notes = await _notes(task, seq)
    for place in range(len(notes) - 1, -1, -1):
        note = notes[place]
        if isinstance(note, MessageNote) and from_json(note.data)["role"] == Role.user:
            return _again(task, note), _kept(notes[:place])
    raise UnsupportedOperationError("the log has no user message up to this entry; choose a later one")


async def _notes(task: StoredTask, seq: int) -> list[Note]:
    notes: list[Note] = []
    while len(notes) < seq:
        try:
            page = await task.scope.read_log(EVENTS, task.record.task_id, after=len(notes), before=seq + 1)
        except LogTrimmed:
            raise UnsupportedOperationError(
                "the first entries of this task's log were trimmed; it can't be forked"
            ) from None
        if not page.entries:  # the task was erased meanwhile
            raise TaskNotFoundError(task.record.task_id)
        notes += map(read_note, page.entries)
    return notes


def _again(task: StoredTask, note: MessageNote) -> Message:
    message = Message.model_validate_json(note.data)
    return message.model_copy(
        update={
            "message_id": new_id(),
            "task_id": None,
            "context_id": task.record.context_id,
            "reference_task_ids": [*(message.reference_task_ids or []), task.record.task_id],
        }
    )


def _kept(notes: list[Note]) -> list[Note]:
    """Copy messages, artifacts and the state; statuses, attempts and steps belong to the old task."""
    kept: list[Note] = []
    for note in notes:
        if isinstance(note, MessageNote | ArtifactNote) or (isinstance(note, OtherNote) and note.kind == "state"):
            kept.append(note)
        elif isinstance(note, StatusNote) and note.said is not None:
            kept.append(MessageNote(note.said))
    return kept
