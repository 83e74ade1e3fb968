"""The trajectory of a planner's run, and its stored form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from keelbolt.state.types.actions import PlannerAction, dump_action, normalise_action
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
