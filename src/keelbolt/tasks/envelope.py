"""What comes with a message, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from pydantic_core import to_json

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.tasks.notes import MessageNote, Note, StatusNote
from keelbolt.tasks.pushes import NewPush
from keelbolt.tasks.record import Turn
from keelbolt.tasks.run import Run
from keelbolt.tasks.store import StoredTask


class Sent(Struct, frozen=True):
    """A message that was taken: its task as of then, and its run if that is in this process."""

    task: StoredTask
    run: Run | None = None
    repeated: bool = False
    opening: Sequence[Note] = ()  # what a new task began with
    opened: StoredTask | None = None  # a task that was continued, as this message found and changed it

    def submitted(self) -> tuple[bytes, int] | None:
        """A new task as it was submitted, and the seq of that; a run that began at once may be further already."""
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
    """What comes with a message: who sends it, what they take as an answer, what middlewares add.

    ``request`` becomes ``ctx.request_context`` and stays in this process; ``stored`` is kept with the turn.
    """

    principal: Principal = ANONYMOUS
    accepts: Sequence[str] = ()
    stored: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}  # of the task that the message makes
    before: Sequence[Note] = ()  # what the log of the task that the message makes begins with
    push: NewPush | None = None  # a push config that the task is made with
    key: str | None = None  # the Idempotency-Key of the request
    request: Mapping[str, Any] = {}
    generation: int | None = None  # that the task must have which the message continues

    def turn(self, number: int, message_id: str) -> Turn:
        caller: dict[str, Any] = {}
        if self.principal is not ANONYMOUS:
            caller = {name: value for name, value in self.principal.to_json().items() if value}
        return Turn(number, message_id, list(self.accepts), dict(self.stored), caller)


ALONE = Envelope()
