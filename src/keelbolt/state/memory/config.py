"""Configuration of a memory: its strategy, budgets, key, and the handling of summariser failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from keelbolt.state.memory.health import MemoryHealth
from keelbolt.state.memory.turns import ConversationTurn

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
