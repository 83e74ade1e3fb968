"""The current turn of a task. A turn that waits at a gate continues with the next message of its task."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pydantic_core import from_json, to_json

from keelbolt.kernel import Put
from keelbolt.turns.durable.families import TASK_TURNS
from keelbolt.turns.durable.places import TurnAddress
from keelbolt.turns.durable.scope import under


@dataclass(frozen=True, slots=True)
class TaskTurn:
    """``through`` is the last task turn that belongs to it; ``waiting``: the next task turn answers ``token``.

    It is stored beside the turns, and only for tasks that reached a gate.
    """

    turn_id: str
    through: int
    token: str | None = None
    waiting: bool = False

    @classmethod
    async def load(cls, place: TurnAddress, task_id: str) -> TaskTurn | None:
        found = await place.scope.get(TASK_TURNS, under(place.owner, task_id))
        return None if found is None else cls(**from_json(found.body))

    async def store(self, place: TurnAddress, task_id: str) -> None:
        fields = {"owner": place.owner, "turn": under(place.owner, self.turn_id)}
        await place.scope.commit(Put(TASK_TURNS, under(place.owner, task_id), to_json(asdict(self)), fields))
