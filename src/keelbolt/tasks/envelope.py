"""The data that comes with a message, and the result of sending it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from pydantic_core import to_json

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.tasks.notes import MessageNote, Note, StatusNote
from keelbolt.tasks.pushes import NewPush
from keelbolt.tasks.record import CurrentTurn
from keelbolt.tasks.run import TaskRun
from keelbolt.tasks.stored_tasks import StoredTask


class Sent(Struct, frozen=True):
    """An accepted message: its task after the commit, and its run if it runs in this process."""

    task: StoredTask
    run: TaskRun | None = None
    repeated: bool = False
    opening: Sequence[Note] = ()  # the first notes of a new task
    opened: StoredTask | None = None  # a continued task, right after this message was accepted

    def submitted(self) -> tuple[bytes, int] | None:
        """Return a new task as submitted, and the seq of that status; a run that has started may be further already."""
        messages: list[bytes] = []
        for seq, note in enumerate(self.opening, 1):
            if isinstance(note, StatusNote):
                ids = to_json(self.task.record.task_id), to_json(self.task.record.context_id)
                history = b",".join(messages)
                return b'{"id":%b,"contextId":%b,"status":%b,"history":[%b]}' % (*ids, note.status, history), seq
            if isinstance(note, MessageNote):
                messages.append(note.data)
        return None


class Envelope(Struct, frozen=True):
    """The data that comes with a message: its sender, the accepted output modes, and additions by middlewares.

    ``request`` becomes ``ctx.request_context`` and stays in this process; ``stored`` is kept with the turn.
    """

    principal: Principal = ANONYMOUS
    accepts: Sequence[str] = ()
    stored: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}  # of the task that the message creates
    before: Sequence[Note] = ()  # the first notes in the log of the task that the message creates
    push: NewPush | None = None  # a push config that the task is created with
    key: str | None = None  # the Idempotency-Key of the request
    request: Mapping[str, Any] = {}
    generation: int | None = None  # required generation of the task that the message continues

    def turn(self, number: int, message_id: str) -> CurrentTurn:
        caller: dict[str, Any] = {}
        if self.principal is not ANONYMOUS:
            caller = {name: value for name, value in self.principal.to_json().items() if value}
        return CurrentTurn(number, message_id, list(self.accepts), dict(self.stored), caller)


ALONE = Envelope()
