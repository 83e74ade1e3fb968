"""The data that comes with a message, the result of sending it, and the recognition of repeated sends.

    key      the client's Idempotency-Key
    message  everything that the client wrote: messageId, contextId, taskId and the rest of the message
    id       the messageId alone (``repeated_send="same"``)
    requeue  the task that is requeued

A key is scoped to a partition, which is one tenant and owner. Its record is inserted in the commit that creates or
continues the task, so a repeat finds it or nothing was committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct
from pydantic_core import from_json, to_json

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import IdempotencyKeyReused, InvalidTaskRequest, MessageReused, StorageBusy
from keelbolt.kernel import Insert, Scope
from keelbolt.protocol.types import Message
from keelbolt.tasks.families import SENDS
from keelbolt.tasks.notes import MessageNote, Note, StatusNote
from keelbolt.tasks.pushes import NewPush
from keelbolt.tasks.record import CurrentTurn
from keelbolt.tasks.run import TaskRun
from keelbolt.tasks.settings import RepeatedSend
from keelbolt.tasks.stored_tasks import StoredTask

MAX_KEY_CHARACTERS = 255
_REUSED = {"key": IdempotencyKeyReused, "id": MessageReused}


class Send(Struct, frozen=True, gc=False):
    """A message to send: its JSON as the client wrote it, and its keys. Without keys, repeats are not recognised."""

    text: bytes
    keys: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, message: Message, text: bytes, principal: Principal, *, repeated: RepeatedSend, key: str | None = None
    ) -> Send:
        """Return the send of this caller's message. Raises InvalidTaskRequest for a wrong Idempotency-Key."""
        keys = () if key is None else (named("key", checked_key(key)),)
        if repeated == "same":
            keys = (*keys, named("id", message.message_id))
        elif repeated == "auto" and principal.owner:
            keys = (*keys, named("message", text))
        return cls(text, keys)

    def insert(self, task_id: str) -> Iterable[Insert]:
        """Return operations that store the task under every key; the commit is refused if a key exists."""
        if not self.keys:
            return ()
        body = b'{"digest":"%b"}' % self._digest().encode()
        return [Insert(SENDS, key, body, {"task": task_id}) for key in self.keys]

    async def reached(self, scope: Scope) -> str | None:
        """Return the task that this message reached before, or None.

        Raises IdempotencyKeyReused, or MessageReused with ``repeated_send="same"``, if the earlier body was different.
        """
        for key in self.keys:
            found = await scope.get(SENDS, key)
            if found is None:
                continue
            kind = key.partition(":")[0]
            if kind in _REUSED and from_json(found.body)["digest"] != self._digest():
                raise _REUSED[kind]
            return str(found.fields["task"])
        return None

    def _digest(self) -> str:
        return blake2b(self.text, digest_size=16).hexdigest()


def named(kind: str, value: str | bytes) -> str:
    """Return the name of a key's record: unique for each text."""
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return f"{kind}:{blake2b(raw, digest_size=24).hexdigest()}"


def checked_key(key: str) -> str:
    """Return the Idempotency-Key. Raises InvalidTaskRequest unless it has 1 to 255 printable ASCII characters."""
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARACTERS or not (key.isascii() and key.isprintable()):
        raise InvalidTaskRequest(f"Idempotency-Key must have 1 to {MAX_KEY_CHARACTERS} printable ASCII characters")
    return key


# ------------------------------------------------------------------------------------------------------------- envelope


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


def being_erased() -> StorageBusy:
    """Return the error for a repeated message whose task is being erased. Sent again, it creates a new task."""
    return StorageBusy("the task of this message is being erased; send the message again")


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
