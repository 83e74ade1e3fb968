"""Repeated sends: which keys a message is known by, and the task that it reached under them.

    key      the client's Idempotency-Key
    message  everything that the client wrote: messageId, contextId, taskId and the rest of the message
    id       the messageId alone (``repeated_send="same"``)
    requeue  the task that is tried again

A key is scoped to a partition, which is one tenant and owner. Its record is inserted in the commit that makes or
continues the task, so a repeat finds it or nothing was committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from msgspec import Struct
from pydantic_core import from_json

from keelbolt.auth.principal import Principal
from keelbolt.errors import IdempotencyKeyReused, InvalidTaskRequest, MessageReused
from keelbolt.protocol.types import Message
from keelbolt.storage import Insert, Scope
from keelbolt.tasks.families import SENDS
from keelbolt.tasks.settings import RepeatedSend

MAX_KEY_CHARACTERS = 255
_REUSED = {"key": IdempotencyKeyReused, "id": MessageReused}


class Send(Struct, frozen=True, gc=False):
    """A message that is sent: its JSON as the client wrote it, and the keys of a repeat. Without keys it has none."""

    text: bytes
    keys: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, message: Message, text: bytes, principal: Principal, *, repeated: RepeatedSend, key: str | None = None
    ) -> Send:
        """The send of this caller's message. Raises InvalidTaskRequest for a wrong Idempotency-Key."""
        keys = () if key is None else (named("key", checked_key(key)),)
        if repeated == "same":
            keys = (*keys, named("id", message.message_id))
        elif repeated == "auto" and principal.owner:
            keys = (*keys, named("message", text))
        return cls(text, keys)

    def insert(self, task_id: str) -> Iterable[Insert]:
        """Operations that remember the task under every key; a commit with them is refused when one is taken."""
        if not self.keys:
            return ()
        body = b'{"digest":"%b"}' % self._digest().encode()
        return [Insert(SENDS, key, body, {"task": task_id}) for key in self.keys]

    async def reached(self, scope: Scope) -> str | None:
        """The task that this message reached before, or None.

        Raises IdempotencyKeyReused, or MessageReused with ``repeated_send="same"``, if the body was another one then.
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
    """The name of a key's record: any text has one, and no two texts share one."""
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return f"{kind}:{blake2b(raw, digest_size=24).hexdigest()}"


def checked_key(key: str) -> str:
    """The Idempotency-Key. Raises InvalidTaskRequest unless it has 1 to 255 printable ASCII characters."""
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARACTERS or not (key.isascii() and key.isprintable()):
        raise InvalidTaskRequest(f"Idempotency-Key must have 1 to {MAX_KEY_CHARACTERS} printable ASCII characters")
    return key
