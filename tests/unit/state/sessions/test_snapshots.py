"""Context snapshots of tasks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from penguiflow.sessions import session as upstream
from pydantic import BaseModel

from keelbolt.state.sessions.context import (
    ContextPatch,
    MergeStrategy,
    SessionContext,
    merged,
    plain_copy,
    plain_dict,
    result_of,
    take_snapshot,
)
from keelbolt.state.types.tasks import TaskContextSnapshot, TaskType


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class Odd:
    """An object that JSON can't represent."""


leaves = (
    st.none()
    | st.integers()
    | st.text(max_size=4)
    | st.builds(Odd)
    | st.just(Colour.RED)
    | st.builds(Model)
    | st.datetimes()
    | st.dates()
    | st.binary(max_size=3)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=4))
def test_the_copy_is_json_as_in_penguiflow(value: dict[str, Any]) -> None:
    """Enums, dates, models and tuples become JSON, other values are dropped, as in penguiflow."""
    copied = plain_dict(value)
    assert json.loads(json.dumps(copied)) == copied
    assert copied == upstream._json_snapshot_dict(upstream._deepcopy_dict(value))


def test_a_value_within_itself_is_dropped() -> None:
    """Only a value within itself is dropped; the same value twice at one level stays."""
    shared: list[Any] = [1]
    loop: dict[str, Any] = {"a": shared, "b": shared}
    loop["self"] = loop
    assert plain_copy(loop) == {"a": [1], "b": [1]}


def snapshot(context: SessionContext, kind: TaskType) -> TaskContextSnapshot:
    return take_snapshot(context, task_type=kind, session_id="s", task_id="t", spawned_from_task_id="p")


def test_background_is_deep_and_foreground_shallow() -> None:
    """Later changes in the session reach nested objects of the foreground snapshot, but not the background one."""
    client = Odd()
    nested = {"list": [1]}
    context = SessionContext(llm_context={"n": nested}, tool_context={"client": client, "x": 1}, version=7)
    front, back = snapshot(context, TaskType.FOREGROUND), snapshot(context, TaskType.BACKGROUND)
    nested["list"].append(2)
    context.llm_context["more"] = 1
    assert front.llm_context == {"n": {"list": [1, 2]}}
    assert front.tool_context["client"] is client
    assert back.llm_context == {"n": {"list": [1]}}
    assert back.tool_context == {"x": 1}
    assert (back.context_version, back.spawned_from_task_id) == (7, "p")


def test_results_are_shown_to_the_task() -> None:
    """The keys are those for the model: a list of appended results, and the replacing result."""
    context = merged(SessionContext(), result_of(ContextPatch(task_id="a")), MergeStrategy.APPEND)
    context = merged(context, result_of(ContextPatch(task_id="b"), payload=Odd()), MergeStrategy.REPLACE)
    for kind in TaskType:
        shown = snapshot(context, kind).llm_context
        assert [result["task_id"] for result in shown["background_results"]] == ["a"]
        assert shown["background_result"]["task_id"] == "b"
