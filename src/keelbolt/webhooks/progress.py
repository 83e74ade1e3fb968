"""The cursor of one config during delivery: saved concurrently with the next POST, not before it.

It is saved at most once per `SAVE_SECONDS`, so that a receiver that takes an event in a millisecond does not wait for
the disk. If a process dies, the next one repeats the unsaved deliveries with the same ids. A config that is deleted or
replaced may receive events for that time, and one event more.
"""

from __future__ import annotations

import asyncio

from keelbolt.kernel import Claim, Insert, Operation, Record, Replace
from keelbolt.tasks.families import PUSH_CURSORS
from keelbolt.webhooks.cursor import DeliveryCursor

SAVE_SECONDS = 0.25


class DeliveryProgress:
    """``cursor`` is the current position. A write of it is refused if another process or a replay has changed it."""

    def __init__(self, claim: Claim, stored: Record | None) -> None:
        self.cursor = DeliveryCursor.of(stored) if stored is not None else DeliveryCursor()
        self._claim = claim
        self._version = stored.version if stored is not None else 0
        self._saving: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._saved_at = self._loop.time()

    async def moved(self, cursor: DeliveryCursor) -> None:
        """Move the cursor after a delivery. Raises CommitRefused if the previous save was refused."""
        now = self._loop.time()
        if now - self._saved_at < SAVE_SECONDS:
            self.cursor = cursor
            return
        await self._saved()
        self.cursor, self._saved_at = cursor, now
        self._saving = asyncio.create_task(self._save(self._claim.fenced()), name=f"cursor of {self._claim.key}")
        self._saving.add_done_callback(_looked_at)

    async def end(self, cursor: DeliveryCursor, *operations: Operation) -> None:
        """Save the cursor, together with the end of the work item."""
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
        task.exception()  # the process that continues raises it; otherwise it is not needed
