"""Standing instructions, which are known by what they say."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.turn_callbacks.samples import ids
from keelbolt.conformance.turn_callbacks.subject import TurnCallbacksCase, law
from keelbolt.turns.primitives import Tokenizable


@law()
async def instructions_are_fetched_in_order(case: TurnCallbacksCase) -> None:
    """Instructions stored as str or Tokenizable are refreshed in the order of storing."""
    turn = case.turn()
    for value in ("c", Tokenizable("a"), "b"):
        await turn.store_standing_instruction(value)
    equal(await ids(case.turn(), "standing_instruction"), ["c", "a", "b"], "the instructions")


@law()
async def instructions_are_deleted_by_their_text(case: TurnCallbacksCase) -> None:
    """An instruction is deleted by its text, as str or Tokenizable, whichever of them was stored."""
    turn = case.turn()
    for value in ("a", Tokenizable("b"), "c"):
        await turn.store_standing_instruction(value)
    await turn.delete_standing_instruction(Tokenizable("a"))
    await turn.delete_standing_instruction("b")
    await turn.delete_standing_instruction("unknown")
    equal(await ids(case.turn(), "standing_instruction"), ["c"], "the instructions that are left")
