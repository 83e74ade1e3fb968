"""The actions of a planner, and their stored form in trajectories.

A trajectory stores each action in the older form with five keys (thought, next_node, args, plan, join); in memory the
``next_node`` of an action is never None. Both forms, and mixtures of them, can be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

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
