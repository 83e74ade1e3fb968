"""The cursor of one config in the hands of whoever delivers to it: saved beside the next POST, not before it.

It is saved so often and not more: a receiver that takes an event in a millisecond is not to wait for the disk. A
process that dies repeats what it had not saved, with the same ids; a config that is deleted or replaced is told for so
long, and one event, more.
"""

from __future__ import annotations

import asyncio

from keelbolt.storage import Claim, Insert, Operation, Record, Replace
from keelbolt.tasks.families import PUSH_CURSORS
from keelbolt.webhooks.cursor import Cursor

SAVE_SECONDS = 0.25


class Progress:
    """``cursor`` is where the delivery stands. Writing it fails when another one, or a replay, has changed it."""

    def __init__(self, claim: Claim, stored: Record | None) -> None:
        self.cursor = Cursor.of(stored) if stored is not None else Cursor()
        self._claim = claim
        self._version = stored.version if stored is not None else 0
        self._saving: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._saved_at = self._loop.time()

    async def moved(self, cursor: Cursor) -> None:
        """An event arrived. Raises CommitRefused when what was saved before was refused."""
        now = self._loop.time()
        if now - self._saved_at < SAVE_SECONDS:
            self.cursor = cursor
            return
        await self._saved()
        self.cursor, self._saved_at = cursor, now
        self._saving = asyncio.create_task(self._save(self._claim.fenced()), name=f"cursor of {self._claim.key}")
        self._saving.add_done_callback(_looked_at)

    async def end(self, cursor: Cursor, *operations: Operation) -> None:
        """Save it, together with what becomes of the work."""
        await self._saved()
        self.cursor = cursor
        await self._save(*operations)

    def abandon(self) -> None:
        if self._saving is not None:
            self._saving.cancel()

    async def _saved(self) -> None:
        saving, self._saving = self._saving, None
        if saving is not None:
            await saving

    async def _save(self, *operations: Operation) -> None:
        key, body = self._claim.key, self.cursor.json()
        write = Replace(PUSH_CURSORS, key, self._version, body) if self._version else Insert(PUSH_CURSORS, key, body)
        await self._claim.scope.commit(write, *operations)
        self._version += 1


def _looked_at(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # whoever goes on raises it; who does not, does not miss it
