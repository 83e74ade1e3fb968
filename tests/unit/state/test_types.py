"""Keelbolt's types have the names, fields, defaults, values and behaviour of penguiflow's."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

import penguiflow.artifacts
import penguiflow.planner.migration
import penguiflow.planner.models
import penguiflow.planner.trajectory
import penguiflow.state
import pytest
from penguiflow.llm.types import AudioPart, ImagePart, TextPart
from pydantic import BaseModel

from keelbolt.state import types
from keelbolt.state.types.trajectories import dump_action, normalise_action

THEIRS: list[Any] = [
    *(penguiflow.artifacts.ArtifactRef, penguiflow.artifacts.ArtifactScope),
    penguiflow.artifacts.ArtifactRetentionConfig,
    *(penguiflow.planner.models.PlannerAction, penguiflow.planner.models.PlannerEvent),
    *(penguiflow.planner.trajectory.BackgroundTaskResult, penguiflow.planner.trajectory.Trajectory),
    *(penguiflow.planner.trajectory.TrajectoryStep, penguiflow.planner.trajectory.TrajectorySummary),
    *(penguiflow.state.RemoteBinding, penguiflow.state.StateUpdate, penguiflow.state.SteeringEvent),
    *(penguiflow.state.SteeringEventType, penguiflow.state.StoredEvent, penguiflow.state.TaskContextSnapshot),
    *(penguiflow.state.TaskState, penguiflow.state.TaskStatus),
    *(penguiflow.state.TaskType, penguiflow.state.UpdateType),
]
ACTIONS: list[dict[str, Any]] = [
    {"next_node": "search", "args": {"q": 1}},
    {"next_node": "search", "args": None, "thought": "  look "},
    {"next_node": None, "args": {"raw_answer": "42"}, "thought": "", "plan": None, "join": None},
    {"next_node": None, "args": {}, "thought": "t"},
    {"next_node": "  ", "thought": "t", "args": {"answer": "a"}},
    {"next_node": 7, "thought": "t", "args": {}},
    {"thought": "t", "next_node": None, "plan": [{"node": "a"}, {"x": 1}, 3], "join": {"node": "j", "args": {"k": 1}}},
    {"thought": "t", "next_node": None, "plan": [{"node": "a", "args": {"b": 2}}], "join": {"node": ""}},
    {"next_node": "parallel", "args": {"steps": [{"node": "a"}], "join": None}},
    {"next_node": "plan", "args": {}},
    {"next_node": "final_response", "args": "done "},
    {"next_node": "final_response", "args": ["a", "", 3, "b"]},
    {"next_node": "final_response", "args": {"answer": " ", "raw_answer": "r"}},
    {"next_node": "final_response"},
    {"raw_answer": "x", "confidence": 1},
    {"args": {"answer": "y"}},
    {"nothing": 1},
    {"action": {"next_node": "tool", "args": {"a": 1}}},
    {"next_node": "task.subagent", "args": {"query": "q", "tool": "t", "merge_strategy": "Human gated"}},
    {"next_node": "task.tool", "args": {"tool": "t", "tool_args": {"a": 1}, "query": "q", "merge_strategy": "odd"}},
    {"next_node": "task", "args": {"query": "q", "tool": "x"}},
    {"next_node": "task", "args": {"tool": "x", "group_merge_strategy": "APPEND"}},
    {"next_node": "task", "args": {"tool_name": "y", "tool": "x"}},
    {"next_node": "task", "args": {"name": "n"}},
]


@pytest.mark.parametrize("theirs", THEIRS, ids=lambda kind: kind.__name__)
def test_same_shape(theirs: Any) -> None:
    """Every type has the fields of penguiflow's, in order and with defaults; every enum has the same members."""
    ours: Any = getattr(types, theirs.__name__)
    assert _shape(ours) == _shape(theirs)


@pytest.mark.parametrize("raw", ACTIONS, ids=repr)
def test_same_actions(raw: dict[str, Any]) -> None:
    """An action of any shape has the same meaning and the same stored form."""
    theirs = penguiflow.planner.migration.normalize_action(raw)
    ours = normalise_action(raw)
    assert ours.model_dump() == theirs.model_dump()
    assert dump_action(ours) == penguiflow.planner.migration.dump_action_legacy(theirs)


def test_same_trajectories() -> None:
    """Keelbolt reads and serializes penguiflow's serialized trajectories in the same way."""
    theirs = penguiflow.planner.trajectory.Trajectory(
        query="q",
        llm_context={"a": 1},
        tool_context={"b": object()},
        input_parts=(ImagePart(b"12", "image/png"), AudioPart(b"1", "audio/wav"), TextPart("t")),
        sources=[{"title": "s"}],
        metadata={"m": [1]},
        resume_user_input="u",
        steering_inputs=["s"],
    )
    for raw in ACTIONS:
        theirs.steps.append(
            penguiflow.planner.trajectory.TrajectoryStep(
                action=penguiflow.planner.migration.normalize_action(raw),
                observation={"seen": "x" * 200},
                error="bad",
                failure={"code": 1},
                streams={"s": [{"text": "t"}]},
            )
        )
    theirs.add_background_result(penguiflow.planner.trajectory.BackgroundTaskResult("t1", payload={1, 2}))
    stored = theirs.serialise()
    ours = types.Trajectory.from_serialised(stored)
    back = penguiflow.planner.trajectory.Trajectory.from_serialised(stored)
    assert ours.serialise() == back.serialise()
    twin = types.Trajectory(query="q", input_parts=theirs.input_parts)
    assert twin.serialise()["input_parts"] == stored["input_parts"]


def test_each_update_has_an_id_of_its_own() -> None:
    first, second = (
        types.StateUpdate(session_id="s", task_id="t", update_type=types.UpdateType.RESULT, content=1) for _ in range(2)
    )
    assert first.update_id != second.update_id


def _shape(kind: Any) -> Any:
    if issubclass(kind, Enum):
        return [(member.name, member.value, str(member)) for member in kind]
    if issubclass(kind, BaseModel):
        return [(name, _default(field)) for name, field in kind.model_fields.items()]
    return [(field.name, _default(field)) for field in dataclasses.fields(kind)]


def _default(field: Any) -> Any:
    made = field.default_factory
    if made in (None, dataclasses.MISSING):
        return repr(field.default)
    value = made() if made in (dict, list) else "made anew"
    return repr(value)
