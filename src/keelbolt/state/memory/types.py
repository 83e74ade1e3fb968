"""The types of a memory: its configuration, its turns, and the health of summarising.

    healthy ──failure──▶ retry ──too many──▶ degraded ──interval over──▶ recovering ──success──▶ healthy
                           └──success──▶ healthy   ▲────────failure──────────┘

A degraded memory keeps only its recent turns; older turns wait in a backlog.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, get_args

from keelbolt.errors import InvalidMemoryState

Strategy = Literal["truncation", "rolling_summary", "none"]
OverflowPolicy = Literal["truncate_summary", "truncate_oldest", "error"]


@dataclass(slots=True)
class MemoryBudget:
    """Size limits. A ``total_max_tokens`` of 0 means no limit, a ``summary_max_tokens`` of 0 means no summary.

    ``overflow_policy`` handles excess: truncate the summary from its beginning, drop the oldest turn, or reject the new
    turn with MemoryBudgetExceeded and leave the memory unchanged.
    """

    full_zone_turns: int = 5
    summary_max_tokens: int = 1000
    total_max_tokens: int = 10000
    overflow_policy: OverflowPolicy = "truncate_oldest"

    def __post_init__(self) -> None:
        _not_negative(self, "full_zone_turns", "summary_max_tokens", "total_max_tokens")
        if self.total_max_tokens and self.summary_max_tokens > self.total_max_tokens:
            message = "summary_max_tokens must be <= total_max_tokens"
            raise ValueError(message)
        _one_of(self, "overflow_policy", get_args(OverflowPolicy))


@dataclass(slots=True)
class MemoryIsolation:
    """Dotted paths to the parts of a memory's key in a tool context.

    With ``require_explicit_key``, a tool context without a session has no memory; otherwise it gets a new one.
    """

    tenant_key: str = "tenant_id"
    user_key: str = "user_id"
    session_key: str = "session_id"
    require_explicit_key: bool = True

    def __post_init__(self) -> None:
        for name in ("tenant_key", "user_key", "session_key"):
            if not getattr(self, name):
                message = f"{name} must be a non-empty string"
                raise ValueError(message)


@dataclass(slots=True)
class ShortTermMemoryConfig:
    """All settings of a memory. The three callbacks run after the change; their errors have no effect."""

    strategy: Strategy = "none"
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    isolation: MemoryIsolation = field(default_factory=MemoryIsolation)

    summarizer_model: str | None = None
    include_trajectory_digest: bool = True

    recovery_backlog_limit: int = 20
    retry_attempts: int = 3
    retry_backoff_base_s: float = 2.0
    degraded_retry_interval_s: float = 30.0

    token_estimator: Callable[[str], int] | None = None

    on_turn_added: Callable[[ConversationTurn], Awaitable[None]] | None = None
    on_summary_updated: Callable[[str, str], Awaitable[None]] | None = None
    on_health_changed: Callable[[MemoryHealth, MemoryHealth], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        _one_of(self, "strategy", get_args(Strategy))
        _not_negative(
            self, "recovery_backlog_limit", "retry_attempts", "retry_backoff_base_s", "degraded_retry_interval_s"
        )

    def snapshot(self) -> dict[str, Any]:
        """Return the settings that are stored with a memory for inspection."""
        budget, isolation = self.budget, self.isolation
        return {
            "strategy": self.strategy,
            "budget": {
                "full_zone_turns": budget.full_zone_turns,
                "summary_max_tokens": budget.summary_max_tokens,
                "total_max_tokens": budget.total_max_tokens,
                "overflow_policy": budget.overflow_policy,
            },
            "isolation": {
                "tenant_key": isolation.tenant_key,
                "user_key": isolation.user_key,
                "session_key": isolation.session_key,
                "require_explicit_key": isolation.require_explicit_key,
            },
            "summarizer_model": self.summarizer_model,
            "include_trajectory_digest": self.include_trajectory_digest,
            "recovery_backlog_limit": self.recovery_backlog_limit,
            "retry_attempts": self.retry_attempts,
        }


def default_token_estimator(text: str) -> int:
    """Estimate tokens as four characters each."""
    return len(text) // 4 + 1


def _not_negative(owner: object, *names: str) -> None:
    for name in names:
        if getattr(owner, name) < 0:
            message = f"{name} must be >= 0"
            raise ValueError(message)


def _one_of(owner: object, name: str, allowed: tuple[str, ...]) -> None:
    if getattr(owner, name) not in allowed:
        message = f"{name} must be one of: {', '.join(allowed)}"
        raise ValueError(message)


# ---------------------------------------------------------------------------------------------------------------- turns


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


# --------------------------------------------------------------------------------------------------------------- health


class MemoryHealth(str, Enum):  # noqa: UP042  (str() of a member must equal that of the specification's enums)
    """Health of summarising."""

    HEALTHY = "healthy"
    RETRY = "retry"
    DEGRADED = "degraded"
    RECOVERING = "recovering"


def after_failure(health: MemoryHealth, *, failures: int, attempts: int) -> MemoryHealth:
    """Return the health after this number of consecutive ``failures``, if ``attempts`` retries are allowed."""
    if health is MemoryHealth.RECOVERING or failures > attempts:
        return MemoryHealth.DEGRADED
    return MemoryHealth.RETRY


def when_loaded(health: MemoryHealth) -> MemoryHealth:
    """Return the health in a process that loads it: a recovery that another process began does not continue."""
    return MemoryHealth.DEGRADED if health is MemoryHealth.RECOVERING else health
