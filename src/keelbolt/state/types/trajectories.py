"""The trajectory of a planner's run, the planner's actions, and their stored forms.

A trajectory stores each action in the older form with five keys (thought, next_node, args, plan, join); in memory the
``next_node`` of an action is never None. Both forms, and mixtures of them, can be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from keelbolt.state.types.planner import BackgroundTaskResult, read_results, through_json


class TrajectorySummary(BaseModel):
    """A trajectory in short, for a model to read."""

    goals: list[str] = []
    facts: dict[str, Any] = {}
    pending: list[str] = []
    last_output_digest: str | None = None
    note: str | None = None


@dataclass(slots=True)
class TrajectoryStep:
    """One action and its outcome."""

    action: PlannerAction
    observation: Any | None = None
    llm_observation: Any | None = None
    error: str | None = None
    failure: Mapping[str, Any] | None = None
    streams: Mapping[str, Sequence[Mapping[str, Any]]] | None = None

    def dump(self) -> dict[str, Any]:
        """Return the step as a dictionary."""
        payload: dict[str, Any] = {
            "action": dump_action(self.action),
            "observation": self._observed(),
            "error": self.error,
            "failure": dict(self.failure) if self.failure else None,
        }
        if self.llm_observation is not None:
            payload["llm_observation"] = self.llm_observation
        if self.streams:
            payload["streams"] = {name: [dict(chunk) for chunk in chunks] for name, chunks in self.streams.items()}
        return payload

    def _observed(self) -> Any:
        return self.observation.model_dump(mode="json") if isinstance(self.observation, BaseModel) else self.observation


@dataclass(slots=True)
class Trajectory:
    """A run of a planner: its query, its steps, and the collected results.

    `serialise` and `from_serialised` convert to and from the stored form. Of ``input_parts`` (images, sound) only a
    description is stored.
    """

    query: str
    llm_context: Mapping[str, Any] | None = None
    tool_context: dict[str, Any] | None = None
    input_parts: tuple[Any, ...] = ()
    artifacts: dict[str, Any] = field(default_factory=dict)
    sources: list[Mapping[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    steps: list[TrajectoryStep] = field(default_factory=list)
    summary: TrajectorySummary | None = None
    hint_state: dict[str, Any] = field(default_factory=dict)
    resume_user_input: str | None = None
    steering_inputs: list[str] = field(default_factory=list)
    background_results: dict[str, BackgroundTaskResult] = field(default_factory=dict)

    def to_history(self) -> list[dict[str, Any]]:
        """Return the steps as dictionaries, in order."""
        return [step.dump() for step in self.steps]

    def serialise(self) -> dict[str, Any]:
        """Return the trajectory as a dictionary. A ``tool_context`` that is not JSON is omitted."""
        return {
            "query": self.query,
            "llm_context": dict(self.llm_context or {}),
            "tool_context": through_json(self.tool_context),
            "input_parts": _stubs(self.input_parts),
            "artifacts": dict(self.artifacts),
            "sources": [dict(source) for source in self.sources],
            "metadata": dict(self.metadata),
            "steps": self.to_history(),
            "summary": self.summary.model_dump(mode="json") if self.summary else None,
            "hint_state": dict(self.hint_state),
            "resume_user_input": self.resume_user_input,
            "steering_inputs": list(self.steering_inputs),
            "background_results": {task_id: result.to_payload() for task_id, result in self.background_results.items()},
        }

    @classmethod
    def from_serialised(cls, payload: Mapping[str, Any]) -> Trajectory:
        """Return the trajectory that `serialise` wrote."""
        tool_context = payload.get("tool_context")
        trajectory = cls(
            query=payload["query"],
            llm_context=payload.get("llm_context") or payload.get("context_meta"),
            tool_context=dict(tool_context) if isinstance(tool_context, Mapping) else {},
        )
        if isinstance(payload.get("metadata"), Mapping):
            trajectory.metadata.update(payload["metadata"])
        trajectory.steps.extend(_step(step) for step in payload.get("steps", []))
        if payload.get("summary"):
            trajectory.summary = TrajectorySummary.model_validate(payload["summary"])
        trajectory.hint_state.update(payload.get("hint_state", {}))
        trajectory.resume_user_input = payload.get("resume_user_input")
        trajectory.steering_inputs = list(payload.get("steering_inputs") or [])
        trajectory.artifacts.update(payload.get("artifacts") or {})
        trajectory.sources.extend(dict(item) for item in payload.get("sources") or [] if isinstance(item, Mapping))
        for result in read_results(payload.get("background_results")):
            trajectory.background_results[result.task_id] = result
        return trajectory


def _step(stored: Mapping[str, Any]) -> TrajectoryStep:
    streams = stored.get("streams")
    kept: dict[str, tuple[Mapping[str, Any], ...]] | None = None
    if isinstance(streams, Mapping):
        kept = {}
        for name, chunks in streams.items():
            found = [dict(chunk) for chunk in chunks if isinstance(chunk, Mapping)] if _listed(chunks) else []
            if found:
                kept[str(name)] = tuple(found)
    return TrajectoryStep(
        action=normalise_action(stored["action"]),
        observation=stored.get("observation"),
        llm_observation=stored.get("llm_observation"),
        error=stored.get("error"),
        failure=stored.get("failure"),
        streams=kept,
    )


def _listed(value: Any) -> bool:
    return isinstance(value, Sequence)


def _stubs(parts: Sequence[Any]) -> list[dict[str, Any]]:
    """Describe images and sound by kind and size; text and calls are omitted."""
    stubs: list[dict[str, Any]] = []
    for part in parts:
        data, media_type = getattr(part, "data", None), getattr(part, "media_type", None)
        if isinstance(data, bytes) and isinstance(media_type, str):
            stub: dict[str, Any] = {"type": "audio", "media_type": media_type, "bytes": len(data)}
            if hasattr(part, "detail"):
                stub = {**stub, "type": "image", "detail": part.detail}
            stubs.append(stub)
    return stubs


# -------------------------------------------------------------------------------------------------------------- actions


DEFAULT_THOUGHT = "planning next step"
_MERGES = frozenset({"append", "replace", "human_gated"})


class PlannerAction(BaseModel):
    """What a planner decided to do: call the tool ``next_node``, or one of the special nodes, with ``args``."""

    next_node: str
    args: dict[str, Any] = Field(default_factory=dict)
    thought: SkipJsonSchema[str] = ""
    raw_llm_response: SkipJsonSchema[str | None] = Field(default=None, exclude=True)
    alternate_actions: SkipJsonSchema[list[dict[str, Any]] | None] = Field(default=None, exclude=True)

    def is_terminal(self) -> bool:
        """Return whether this is the answer to the user."""
        return self.next_node == "final_response"

    def is_parallel(self) -> bool:
        """Return whether this is a plan of several parallel calls."""
        return self.next_node == "parallel"

    def answer_text(self) -> str | None:
        """Return the answer under its current or older key."""
        for name in ("answer", "raw_answer"):
            value = self.args.get(name)
            if isinstance(value, str):
                return value
        return None


def dump_action(action: PlannerAction) -> dict[str, Any]:
    """Return the action in the form with five keys."""
    dumped: dict[str, Any] = {
        "thought": action.thought or DEFAULT_THOUGHT,
        "next_node": None,
        "args": None,
        "plan": None,
        "join": None,
    }
    if action.is_parallel():
        steps, join = action.args.get("steps"), action.args.get("join")
        dumped["plan"] = list(steps) if isinstance(steps, list) else []
        dumped["join"] = dict(join) if isinstance(join, Mapping) else None
        return dumped
    dumped["args"] = dict(action.args)
    if action.is_terminal():
        dumped["args"].setdefault("raw_answer", action.answer_text() or "")
    else:
        dumped["next_node"] = action.next_node
    return dumped


def normalise_action(raw: str | Mapping[str, Any]) -> PlannerAction:
    """Return the action of either form, or of a mixture of both."""
    if isinstance(raw, str):
        raw = json.loads(raw)
    if not isinstance(raw, Mapping):
        raise ValueError("action_payload_unparseable")  # noqa: TRY004  (as the specification's runtime raises)
    older = "thought" in raw or "plan" in raw or "join" in raw or ("next_node" in raw and raw["next_node"] is None)
    node, args = raw.get("next_node"), raw.get("args")
    if older or (not isinstance(node, str) and not _answers(raw) and not _answers(args)):
        return _older(raw)
    if not isinstance(node, str):
        return _final(raw if _answers(raw) else args, None)
    if node == "final_response":
        return _final(args, None)
    if node in {"parallel", "plan"}:
        plan = dict(args) if isinstance(args, Mapping) else {}
        return _action("parallel", {"steps": _plan(plan.get("steps")) or [], "join": _join(plan.get("join"))}, None)
    if node in {"task.subagent", "task.tool", "task"}:
        return _action("tasks.spawn", _spawn(node, dict(args) if isinstance(args, Mapping) else {}), None)
    return _action(node, dict(args) if isinstance(args, Mapping) else {}, None)


def _older(raw: Mapping[str, Any]) -> PlannerAction:
    patched = dict(raw)
    nested = patched.get("action")
    if isinstance(nested, Mapping):
        patched.update(
            {name: nested.get(name, patched.get(name)) for name in ("thought", "next_node", "args", "plan", "join")}
        )
    thought = patched.get("thought")
    plan = _plan(patched.get("plan"))
    if plan is not None:
        return _action("parallel", {"steps": plan, "join": _join(patched.get("join"))}, thought, strip=False)
    args = dict(patched["args"]) if isinstance(patched.get("args"), Mapping) else {}
    node = patched.get("next_node")
    if isinstance(node, str) and node.strip():
        return _action(node, args, thought, strip=False)
    answer = _answer(args)
    if answer is not None:
        args = {**args, "answer": args.get("answer", answer), "raw_answer": args.get("raw_answer", answer)}
    elif node is not None:
        args = {"answer": "", "raw_answer": ""}
    return _action("final_response", args, thought, strip=False)


def _final(args: Any, thought: Any) -> PlannerAction:
    payload: dict[str, Any] = {}
    if isinstance(args, Mapping):
        payload = dict(args)
    elif isinstance(args, str) and args.strip():
        payload = {"answer": args.strip()}
    elif isinstance(args, Sequence) and not isinstance(args, str | bytes | bytearray):
        text = "\n".join(item for item in args if isinstance(item, str) and item.strip()).strip()
        payload = {"answer": text} if text else {}
    answer = _answer(payload)
    if answer is not None:
        payload.setdefault("answer", answer)
        payload.setdefault("raw_answer", answer)
    return _action("final_response", payload, thought)


def _action(node: str, args: dict[str, Any], thought: Any, *, strip: bool = True) -> PlannerAction:
    said = isinstance(thought, str) and bool(thought.strip())
    text = (thought.strip() if strip else thought) if said else DEFAULT_THOUGHT
    return PlannerAction(next_node=node, args=args, thought=text)


def _answers(payload: Any) -> bool:
    return isinstance(payload, Mapping) and ("raw_answer" in payload or "answer" in payload)


def _answer(payload: Mapping[str, Any]) -> str | None:
    for name in ("answer", "raw_answer"):
        value = payload.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return None


def _plan(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        return None
    return [{"args": {}, **item} for item in value if isinstance(item, Mapping) and "node" in item] or None


def _join(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, Mapping) or value.get("node") in (None, ""):
        return None
    return {"inject": None, "args": {}, **value}


def _spawn(node: str, payload: dict[str, Any]) -> dict[str, Any]:
    for name in ("merge_strategy", "group_merge_strategy"):
        merge = str(payload.get(name) or "").strip().lower().replace("-", "_").replace(" ", "_")
        if merge in _MERGES:
            payload[name] = merge
        elif merge.startswith("human"):
            payload[name] = "human_gated"
    if node == "task.subagent" or (node == "task" and isinstance(payload.get("query"), str)):
        for name in ("tool", "tool_args", "tool_name"):
            payload.pop(name, None)
        return {**payload, "mode": "subagent"}
    tool = payload.get("tool") if node == "task.tool" else payload.get("tool_name") or payload.get("tool")
    if node == "task" and tool is None:
        return payload
    payload.pop("query", None)
    if node == "task.tool":
        payload.pop("tool", None)
    if tool is not None and (node == "task.tool" or "tool_name" not in payload):
        payload.pop("tool", None)
        payload["tool_name"] = tool
    return {**payload, "mode": "job"}
