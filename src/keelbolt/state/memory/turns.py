"""Conversation turns: one exchange of user and assistant, with a digest of the planner's steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from keelbolt.errors import InvalidMemoryState


@dataclass(slots=True)
class TrajectoryDigest:
    """A short digest of the steps behind an answer."""

    tools_invoked: list[str]
    observations_summary: str
    reasoning_summary: str | None = None
    artifacts_refs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ConversationTurn:
    """One exchange. ``ts`` is Unix time in seconds."""

    user_message: str
    assistant_response: str
    trajectory_digest: TrajectoryDigest | None = None
    artifacts_shown: dict[str, Any] = field(default_factory=dict)
    artifacts_hidden_refs: list[str] = field(default_factory=list)
    ts: float = 0.0


def own(turn: ConversationTurn) -> ConversationTurn:
    """Return a copy that callers can't change; penguiflow's turns are converted."""
    return load(dump(turn))


def shown(turn: ConversationTurn, *, digest: bool) -> dict[str, Any]:
    """Return the turn in the form shown to the model."""
    payload: dict[str, Any] = {"user": turn.user_message, "assistant": turn.assistant_response}
    if digest and turn.trajectory_digest is not None:
        payload["trajectory_digest"] = _dump_digest(turn.trajectory_digest)
    return payload


def dump(turn: ConversationTurn) -> dict[str, Any]:
    """Return the stored form of the turn."""
    return {
        "user_message": turn.user_message,
        "assistant_response": turn.assistant_response,
        "trajectory_digest": None if turn.trajectory_digest is None else _dump_digest(turn.trajectory_digest),
        "artifacts_shown": dict(turn.artifacts_shown),
        "artifacts_hidden_refs": list(turn.artifacts_hidden_refs),
        "ts": turn.ts,
    }


def load(stored: object) -> ConversationTurn:
    """Return the turn of a stored form. Raise InvalidMemoryState."""
    if not isinstance(stored, Mapping):
        raise InvalidMemoryState("a turn must be an object")
    digest = stored.get("trajectory_digest")
    if digest is not None and not isinstance(digest, Mapping):
        raise InvalidMemoryState("a trajectory_digest must be an object")
    return ConversationTurn(
        user_message=str(stored.get("user_message") or ""),
        assistant_response=str(stored.get("assistant_response") or ""),
        trajectory_digest=None if digest is None else _load_digest(digest),
        artifacts_shown=dict(stored.get("artifacts_shown") or {}),
        artifacts_hidden_refs=list(stored.get("artifacts_hidden_refs") or []),
        ts=float(stored.get("ts") or 0.0),
    )


def _dump_digest(digest: TrajectoryDigest) -> dict[str, Any]:
    return {
        "tools_invoked": list(digest.tools_invoked),
        "observations_summary": digest.observations_summary,
        "reasoning_summary": digest.reasoning_summary,
        "artifacts_refs": list(digest.artifacts_refs),
    }


def _load_digest(stored: Mapping[str, Any]) -> TrajectoryDigest:
    reasoning = stored.get("reasoning_summary")
    return TrajectoryDigest(
        tools_invoked=list(stored.get("tools_invoked") or []),
        observations_summary=str(stored.get("observations_summary") or ""),
        reasoning_summary=None if reasoning is None else str(reasoning),
        artifacts_refs=list(stored.get("artifacts_refs") or []),
    )
