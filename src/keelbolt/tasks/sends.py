"""Sending is idempotent: a message id reaches one task, once, per tenant and owner."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b, sha256

from pydantic_core import from_json, to_json

from keelbolt.errors import MessageReused
from keelbolt.storage import Delete, Insert, Kernel
from keelbolt.tasks.families import SENDS

MAX_PLAIN_ID = 200  # characters; a longer id is kept by its digest


@dataclass(frozen=True, slots=True)
class Send:
    """A message that is sent: its id, and its text as the client wrote it. Unless ``once``, a repeat is a new one."""

    message_id: str
    text: bytes
    once: bool = True

    @property
    def key(self) -> str:
        return send_key(self.message_id)

    def insert(self, task_id: str) -> tuple[Insert, ...]:
        """Remember that this message reached this task; refused when it was sent before."""
        if not self.once:
            return ()
        body = b'{"task":%b,"digest":"%b"}' % (to_json(task_id), self._digest().encode())
        return (Insert(SENDS, self.key, body),)

    async def reached(self, kernel: Kernel, partition: str) -> str | None:
        """The task that this message reached before; raises MessageReused if it had another body then."""
        found = await kernel.get(partition, SENDS, self.key) if self.once else None
        if found is None:
            return None
        body = from_json(found.body)
        if body["digest"] != self._digest():
            raise MessageReused
        task_id: str = body["task"]
        return task_id

    def _digest(self) -> str:
        return blake2b(self.text, digest_size=16).hexdigest()


def send_key(message_id: str) -> str:
    if len(message_id) <= MAX_PLAIN_ID and message_id.isprintable() and not message_id.startswith("~"):
        return message_id
    return "~" + sha256(message_id.encode("utf-8", "surrogatepass")).hexdigest()


def forget_send(message_id: str) -> Delete:
    return Delete(SENDS, send_key(message_id))
