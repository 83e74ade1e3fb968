"""Which turn of the agent a task is in. A turn that waits at a gate goes on with the next message of its task."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pydantic_core import from_json, to_json

from keelbolt.storage import Kernel, Put
from keelbolt.turns.durable.families import TASK_TURNS
from keelbolt.turns.durable.places import Place
from keelbolt.turns.durable.scope import under


@dataclass(frozen=True, slots=True)
class TaskTurn:
    """``through`` is the last turn of the task that belongs to it; ``waiting``: the one after it answers ``token``."""

    turn_id: str
    through: int
    token: str | None = None
    waiting: bool = False


class TaskTurns:
    """Kept beside the turns themselves. Only a task that came to a gate has an entry."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def get(self, place: Place, task_id: str) -> TaskTurn | None:
        found = await self._kernel.get(place.partition, TASK_TURNS, under(place.owner, task_id))
        return None if found is None else TaskTurn(**from_json(found.body))

    async def put(self, place: Place, task_id: str, entry: TaskTurn) -> None:
        fields = {"owner": place.owner, "turn": under(place.owner, entry.turn_id)}
        body = to_json(asdict(entry))
        await self._kernel.commit(place.partition, Put(TASK_TURNS, under(place.owner, task_id), body, fields))
