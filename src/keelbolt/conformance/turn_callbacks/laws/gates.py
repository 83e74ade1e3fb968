"""Gates that are kept."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import equal
from keelbolt.conformance.turn_callbacks.subject import TurnCallbacksCase, law
from keelbolt.turns.gates import Settlement, TurnGate


@law("gates")
async def the_first_settlement_counts(case: TurnCallbacksCase) -> None:
    """Of two settlements of a gate the first one counts, also for a turn that opens the gate again."""
    turn = case.turn()

    def gate() -> TurnGate:
        return TurnGate(turn_id=turn.id, id="pay", reason="May I pay?")

    equal(await case.gates.open(turn, gate()), None, "the settlement of a new gate")
    first = await case.gates.settle(turn, gate(), Settlement("resolved", True))
    second = await case.gates.settle(turn, gate(), Settlement("resolved", False))
    again = await case.gates.open(turn, gate())
    equal([each.value for each in (first, second, again)], [True, True, True], "the values")


@law("gates")
async def one_of_concurrent_settlements_counts(case: TurnCallbacksCase) -> None:
    """Of concurrent settlements one counts: each settler gets its value, and so does a turn that opens the gate."""
    turn = case.turn()
    gate = TurnGate(turn_id=turn.id, id="pay", reason="May I pay?")
    await case.gates.open(turn, gate)
    found = await asyncio.gather(
        *(case.gates.settle(turn, gate, Settlement("resolved", number)) for number in range(5))
    )
    stored = await case.gates.open(turn, gate)
    equal([each.value for each in found], [stored.value] * 5, "the values that the settlers get")


@law("gates")
async def a_settlement_belongs_to_one_gate(case: TurnCallbacksCase) -> None:
    """A settlement applies to no other gate of its turn and to no gate of another turn."""
    turn = case.turn()
    await case.gates.open(turn, TurnGate(turn_id=turn.id, id="one", reason="May I look?"))
    await case.gates.settle(
        turn, TurnGate(turn_id=turn.id, id="one", reason="May I look?"), Settlement("resolved", True)
    )
    other = TurnGate(turn_id=turn.id, id="two", reason="May I pay 1000?")
    equal(await case.gates.open(turn, other), None, "the settlement of another gate of the turn")
    later = case.turn()
    gate = TurnGate(turn_id=later.id, id="one", reason="May I look?")
    equal(await case.gates.open(later, gate), None, "the settlement of the same question in another turn")
