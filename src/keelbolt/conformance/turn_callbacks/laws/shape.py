"""The 27 are there, and can be called."""

from __future__ import annotations

from keelbolt.conformance.expect import broken, equal, expect
from keelbolt.conformance.turn_callbacks.samples import FETCH, fetch
from keelbolt.conformance.turn_callbacks.subject import TurnCallbacksCase, law
from keelbolt.errors import InvalidTurnRunnerConfig
from keelbolt.turns.runner import TurnRunner


async def _execute(_ctx: object, _helpers: object) -> None:
    return None


@law()
async def all_callbacks_exist(case: TurnCallbacksCase) -> None:
    """All 27 callbacks exist with their parameters, so that a runner can be made of them."""
    try:
        TurnRunner(executor_callback=_execute, **dict(case.callbacks))
    except InvalidTurnRunnerConfig as wrong:
        broken(str(wrong))


@law()
async def a_new_adapter_is_empty(case: TurnCallbacksCase) -> None:
    """In a new adapter every fetch returns an empty list."""
    turn = case.turn()
    for kind, name in FETCH.items():
        equal(await fetch(turn, kind), [], f"the values of {name}")
    expect(isinstance(await turn.fetch_tools(), list | tuple), "fetch_tools_callback did not return a list")
