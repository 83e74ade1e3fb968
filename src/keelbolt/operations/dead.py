"""The operations API for dead letters: tasks that were given up after their last attempt."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from keelbolt.errors import TaskNotFoundError, UnsupportedOperationError
from keelbolt.kernel import Scope
from keelbolt.operations.call import OpsCall
from keelbolt.operations.paging import page_of
from keelbolt.operations.tasks import reason_shown
from keelbolt.tasks.dead import DeadLetter, dead_letters, drop
from keelbolt.tasks.engine import TaskEngine


class DeadOperations:
    """The handlers of the routes for dead letters."""

    def __init__(self, engine: TaskEngine) -> None:
        self._engine = engine

    async def list_dead(self, call: OpsCall) -> bytes:
        letters, token = await self._page(call)
        return to_json({"dead": [_json(call, letter) for letter in letters], "nextPageToken": token})

    async def requeue_dead(self, call: OpsCall) -> bytes:
        """Requeue a page of dead letters. Those with an unknown sender, or that can't be sent again, are kept."""
        letters, token = await self._page(call)
        requeued, kept = list[dict[str, str]](), list[str]()
        for letter in letters:
            try:
                who = letter.principal
                sent = None if who is None else await self._engine.tasks.requeue(letter.task_id, who)
            except (TaskNotFoundError, UnsupportedOperationError):
                sent = None
            if sent is None:
                kept.append(letter.task_id)
            else:
                requeued.append({"taskId": letter.task_id, "newTaskId": sent.task.record.task_id})
        return to_json({"requeued": requeued, "kept": kept, "nextPageToken": token})

    async def drop_dead(self, call: OpsCall) -> bytes:
        if not await drop(self._engine.tasks.scope(call.principal), call.task_id):
            raise TaskNotFoundError(call.task_id)
        return b'{"dropped":1}'

    async def drop_all_dead(self, call: OpsCall) -> bytes:
        letters, token = await self._page(call)
        dropped = [await drop(letter.scope, letter.task_id) for letter in letters]
        return to_json({"dropped": sum(dropped), "nextPageToken": token})

    async def _page(self, call: OpsCall) -> tuple[list[DeadLetter], str]:
        async def read(scope: Scope, limit: int, cursor: str | None) -> tuple[tuple[DeadLetter, ...], str | None]:
            page = await dead_letters(self._engine.store, scope, limit=limit, cursor=cursor)
            return page.letters, page.cursor

        return await page_of(self._engine.kernel, call, read)


def _json(call: OpsCall, letter: DeadLetter) -> dict[str, Any]:
    return {
        "taskId": letter.task_id,
        "partition": letter.scope.partition,
        "attempts": letter.attempts,
        "reason": reason_shown(call, letter.reason),
        "state": letter.record.state.name if letter.record is not None else None,
    }
