"""Progress of turns: one record for each turn with a given id, written in the commits of its iterations.

``state`` is ``running``, ``ended`` (acknowledged), or ``failed``: the turn stopped before its end, and no process
continues it unless a caller starts it again. ``run`` counts the starts of the turn. Every commit of a run checks it, so
that a process that was presumed dead and returns can no longer write.
"""

from __future__ import annotations

from collections.abc import Callable

from keelbolt.errors import CommitRefused
from keelbolt.kernel import Insert, Patch, Scalar
from keelbolt.turns.context import TurnProgress
from keelbolt.turns.durable.families import TURNS
from keelbolt.turns.durable.places import TurnAddress
from keelbolt.turns.durable.scope import TurnLike
from keelbolt.turns.durable.unit import current


class DurableProgress:
    """`storage.progress`: the ``progress_store`` of a runner."""

    def __init__(self, place: Callable[[TurnLike], TurnAddress], now: Callable[[], int]) -> None:
        self._place = place
        self._now = now
        self._runs: dict[int, int] = {}  # by ``id()`` of a running context

    def run_of(self, ctx: TurnLike) -> int:
        """Return the run number of this context; 0: not tracked."""
        return self._runs.get(id(ctx), 0)

    async def begin(self, ctx: TurnLike) -> TurnProgress:
        place = self._place(ctx)
        while True:
            record = await place.scope.get(TURNS, place.turn)
            found = record.fields if record is not None else {}
            run = int(found.get("run") or 0) + 1
            ended = found.get("state") == "ended"
            state = "ended" if ended else "running"
            fields: dict[str, Scalar] = {"run": run, "at": self._now(), "owner": place.owner, "state": state}
            operation: Insert | Patch
            if record is None:
                operation = Insert(TURNS, place.turn, b"", {**fields, "iterations": 0})
            else:
                operation = Patch(TURNS, place.turn, fields, record.version)
            try:
                await place.scope.commit(operation)
            except CommitRefused:
                continue
            self._runs[id(ctx)] = run
            return TurnProgress(int(found.get("iterations") or 0), ended=ended)

    async def reached(self, ctx: TurnLike, progress: TurnProgress) -> None:
        place = self._place(ctx)
        state = "ended" if progress.ended else "running"
        fields: dict[str, Scalar] = {"iterations": progress.iterations, "state": state, "at": self._now()}
        operation = Patch(TURNS, place.turn, fields)
        unit = current.get()
        if unit is not None and unit.open and unit.scope == place.scope:
            unit.also(operation)
            return
        try:
            await place.scope.commit(*place.guards, operation)
        except CommitRefused as refusal:
            place.check(refusal)
            raise

    def leave(self, ctx: TurnLike) -> None:
        self._runs.pop(id(ctx), None)
