"""Checks 1 to 4: the constructor checks a runner and reports all problems at once."""

from __future__ import annotations

import functools
from typing import Any
from unittest.mock import AsyncMock

import pytest

from keelbolt.errors import InvalidTurnRunnerConfig
from keelbolt.turns import Tool, TurnRunner, noop_storage
from keelbolt.turns.callbacks import CALLBACKS, REQUIRED
from keelbolt.turns.tools import arity_problem
from tests.unit.turns.stage import Stage, acknowledge, turn

SHAPES: dict[int, Any] = {
    0: lambda: None,
    1: lambda _a: None,
    2: lambda _a, _b: None,
    3: lambda _a, _b, _c: None,
    4: lambda _a, _b, _c, _d: None,
}


def config(**changes: Any) -> dict[str, Any]:
    return {"executor_callback": acknowledge, **noop_storage(), **changes}


def refused(**changes: Any) -> InvalidTurnRunnerConfig:
    with pytest.raises(InvalidTurnRunnerConfig) as error:
        TurnRunner(**config(**changes))
    assert (error.value.code, error.value.status, error.value.fatal) == ("E_INVALID_TURN_RUNNER_CONFIG", 529, True)
    assert str(error.value) == "; ".join(error.value.problems)
    return error.value


def test_check_01_every_callback_and_the_executor_are_required() -> None:
    TurnRunner(executor_callback=acknowledge, **noop_storage())
    assert len(REQUIRED) == 27
    assert set(REQUIRED) == set(noop_storage())
    for name in (*REQUIRED, "executor_callback"):
        rest = {key: value for key, value in config().items() if key != name}
        for bad in (rest, config(**{name: None}), config(**{name: "text"})):
            with pytest.raises(InvalidTurnRunnerConfig) as error:
                TurnRunner(**bad)
            assert [problem.split()[0] for problem in error.value.problems] == [name]


@pytest.mark.parametrize("name", REQUIRED)
def test_check_02_the_number_of_parameters_is_exact(name: str) -> None:
    arity = CALLBACKS[name].arity

    def stars(*_args: Any) -> None: ...

    @functools.wraps(SHAPES[arity])
    def wrapped(*args: Any) -> Any: ...

    for wrong in (SHAPES[arity - 1], SHAPES[arity + 1], stars, wrapped, AsyncMock()):
        error = refused(**{name: wrong})
        assert len(error.problems) == 1
        assert error.problems[0].startswith(name)
        assert f"it must take {arity}: (ctx" in error.problems[0]
    TurnRunner(**config(**{name: SHAPES[arity]}))


class Shapes:
    def bound(self, ctx: Any, value: Any) -> None: ...

    @staticmethod
    def static(ctx: Any, value: Any) -> None: ...

    @classmethod
    def of_class(cls, ctx: Any, value: Any) -> None: ...

    def __call__(self, ctx: Any, value: Any) -> None: ...


def with_database(database: Any, ctx: Any, value: Any) -> None: ...


def with_option(ctx: Any, value: Any, *, timeout: int = 3) -> None: ...


def with_default(ctx: Any, value: Any, more: int = 1) -> None: ...


def with_too_few(ctx: Any, value: Any = None) -> None: ...


def with_keyword(ctx: Any, value: Any, *, timeout: int) -> None: ...


def test_check_03_usual_shapes_pass_and_three_problems_are_one_error() -> None:
    good = [
        Shapes().bound,
        Shapes.static,
        Shapes().static,
        Shapes.of_class,
        Shapes(),
        functools.partial(with_database, "db"),
        with_option,
        with_default,
    ]
    for shape in good:
        TurnRunner(**config(store_message_callback=shape))
    for shape in (Shapes.bound, with_too_few, with_keyword, map):
        assert refused(store_message_callback=shape).problems[0].startswith("store_message_callback")
    assert "default does not count" in str(refused(store_message_callback=with_too_few))
    assert "keyword argument timeout" in str(refused(store_message_callback=with_keyword))
    assert arity_problem(map, 2) is not None
    error = refused(fetch_messages_callback=list, delete_memory_callback=None, store_thought_callback=5)
    assert len(error.problems) == 3
    for name in ("fetch_messages_callback", "delete_memory_callback", "store_thought_callback"):
        assert name in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"store_mesage_callback": lambda _c, _v: None}, "store_mesage_callback is unknown"),
        ({"tools": ["add"]}, "tools[0] is str; it must be a Tool"),
        ({"tools": "add"}, "tools must be a list of Tool"),
        ({"tools": None}, "tools must be a list of Tool"),
        ({"turn_input_pipeline": [5]}, "turn_input_pipeline[0] is int"),
        ({"turn_output_pipeline": 5}, "turn_output_pipeline must be a list"),
        ({"dispatch_input_pipeline": [None]}, "dispatch_input_pipeline[0] is NoneType"),
        ({"dispatch_output_pipeline": ["x"]}, "dispatch_output_pipeline[0] is str"),
        ({"replace_tool_call_group_callback": lambda _c, _v: None}, "replace_tool_call_group_callback takes 2"),
        ({"persistence": "eager"}, "deferred or immediate, not 'eager'"),
        ({"persistence": 5}, "a dict of kinds"),
        ({"persistence": {"messages": "deferred"}}, "unknown kind 'messages'"),
        ({"persistence": {"*": "later"}}, "not 'later'"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"max_iterations": True}, "max_iterations"),
        ({"unit_of_work": 5}, "unit_of_work"),
        ({"gate_store": object()}, "open, settle and wait"),
        ({"listener_timeout_seconds": 0}, "listener_timeout_seconds"),
        ({"check_artifact_ids": 1}, "check_artifact_ids"),
    ],
)
def test_check_04_other_fields_are_checked_too(changes: dict[str, Any], words: str) -> None:
    error = refused(**changes)
    assert len(error.problems) == 1
    assert words in str(error)


def test_check_04_the_group_callback_may_be_absent() -> None:
    TurnRunner(**config(replace_tool_call_group_callback=None))
    TurnRunner(**config(replace_tool_call_group_callback=lambda _ctx, _ids, _replacements: None))
    tool = Tool(name="add", description="adds", input_schema={"type": "object"}, handler=lambda _a, _c, _m: "")
    TurnRunner(**config(tools=[tool]))
    assert "a second tool named 'add'" in str(refused(tools=[tool, tool]))


async def test_later_changes_of_the_lists_have_no_effect() -> None:
    stage = Stage()
    ran: list[str] = []

    async def step(_ctx: Any, proceed: Any) -> None:
        ran.append("step")
        await proceed()

    steps = [step]
    kinds = {"*": "deferred"}
    runner = stage.runner(turn_input_pipeline=steps, dispatch_input_pipeline=steps, persistence=kinds)
    steps.clear()
    kinds["*"] = "nonsense"
    await runner.run(turn())
    assert ran == ["step", "step"]
