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
async def a_runner_takes_them(case: TurnCallbacksCase) -> None:
    """All 27 callbacks are there, each with its parameters, so that a runner can be made of them."""
    try:
        TurnRunner(executor_callback=_execute, **dict(case.callbacks))
    except InvalidTurnRunnerConfig as wrong:
        broken(str(wrong))


@law()
async def nothing_is_stored_at_first(case: TurnCallbacksCase) -> None:
    """In a new adapter every fetch answers an empty list."""
    turn = case.turn()
    for kind, name in FETCH.items():
        equal(await fetch(turn, kind), [], f"what {name} found")
    expect(isinstance(await turn.fetch_tools(), list | tuple), "fetch_tools_callback answered no list")
