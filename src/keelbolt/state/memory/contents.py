"""The contents of a memory, kept within its budget. Pure: no I/O, no clock.

turns (the latest, in full)  ──▶  pending (to be summarised)  ──▶  summary
                                  backlog (to be summarised when the summariser works again)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Self

from keelbolt.errors import InvalidMemoryState, MemoryBudgetExceeded
from keelbolt.state.memory.types import (
    ConversationTurn,
    MemoryHealth,
    ShortTermMemoryConfig,
    default_token_estimator,
    dump,
    load,
    shown,
)

STATE_VERSION = 1


class Contents:
    """The summary and the turns of one conversation."""

    __slots__ = ("backlog", "config", "pending", "summary", "turns")

    def __init__(self, config: ShortTermMemoryConfig) -> None:
        self.config = config
        self.summary = ""
        self.turns: list[ConversationTurn] = []
        self.pending: list[ConversationTurn] = []
        self.backlog: list[ConversationTurn] = []

    def everything(self) -> list[ConversationTurn]:
        """Return all turns, the oldest first."""
        return [*self.backlog, *self.pending, *self.turns]

    # ------------------------------------------------------------------------------------------------------ changes

    def add(self, turn: ConversationTurn, health: MemoryHealth) -> None:
        """Add a turn. If the policy is "error" and it does not fit, raise MemoryBudgetExceeded and change nothing."""
        before = copy(self.turns), copy(self.pending), copy(self.backlog)
        self.turns.append(turn)
        fallen = self._beyond_the_full_zone()
        if self.config.strategy == "rolling_summary":
            if health is MemoryHealth.DEGRADED:
                self._later(fallen)
            else:
                self.pending += fallen
        try:
            self._fit(health)
        except MemoryBudgetExceeded:
            self.turns, self.pending, self.backlog = before
            raise

    def summarised(self, summary: str, turns: Iterable[ConversationTurn]) -> None:
        """Set the summary and remove the turns it covers. Raise MemoryBudgetExceeded if the policy is "error"."""
        self.summary, before = self._short_enough(summary), self.summary
        zones = self.pending, self.backlog
        self.pending, self.backlog = copy(self.pending), copy(self.backlog)
        for turn in turns:
            zone = self.pending if turn in self.pending else self.backlog
            if turn in zone:
                zone.remove(turn)
        try:
            self._fit(MemoryHealth.HEALTHY)
        except MemoryBudgetExceeded:
            self.summary, (self.pending, self.backlog) = before, zones
            raise

    def give_up(self) -> None:
        """Move pending turns to the backlog because the summariser fails."""
        fallen, self.pending = self.pending, []
        self._later(fallen)

    def resume(self) -> None:
        """Move the backlog to the pending turns because the summariser works again."""
        self.pending, self.backlog = [*self.backlog, *self.pending], []

    def _beyond_the_full_zone(self) -> list[ConversationTurn]:
        surplus = max(0, len(self.turns) - self.config.budget.full_zone_turns)
        fallen, self.turns = self.turns[:surplus], self.turns[surplus:]
        return fallen

    def _later(self, turns: list[ConversationTurn]) -> None:
        waiting = [*self.backlog, *turns]
        self.backlog = waiting[max(0, len(waiting) - self.config.recovery_backlog_limit) :]

    # ------------------------------------------------------------------------------------------------------- budget

    def context(self, health: MemoryHealth) -> dict[str, Any]:
        """Return the memory's part of the model context."""
        digest = self.config.include_trajectory_digest
        payload: dict[str, Any] = {"recent_turns": [shown(turn, digest=digest) for turn in self.turns]}
        if self.config.strategy == "rolling_summary" and health is not MemoryHealth.DEGRADED:
            if self.pending:
                payload["pending_turns"] = [shown(turn, digest=digest) for turn in self.pending]
            if self.summary:
                payload["summary"] = self.summary
        return payload

    def tokens(self, health: MemoryHealth) -> int:
        """Return the estimated tokens of the context."""
        shown_now = {} if self.config.strategy == "none" else self.context(health)
        return self._estimate(json.dumps(shown_now, ensure_ascii=False, sort_keys=True))

    def _estimate(self, text: str) -> int:
        return (self.config.token_estimator or default_token_estimator)(text)

    def _fit(self, health: MemoryHealth) -> None:
        """Drop what does not fit, in the order of the policy. Only data in the context counts."""
        budget = self.config.budget
        whole = self.config.strategy == "rolling_summary" and health is not MemoryHealth.DEGRADED
        while budget.total_max_tokens and (tokens := self.tokens(health)) > budget.total_max_tokens:
            if budget.overflow_policy == "error":
                raise MemoryBudgetExceeded(
                    f"the memory needs {tokens} tokens; total_max_tokens is {budget.total_max_tokens}"
                )
            if whole and self.summary and budget.overflow_policy == "truncate_summary":
                surplus = (tokens - budget.total_max_tokens) / max(self._estimate(self.summary), 1)
                self.summary = self.summary[max(1, int(len(self.summary) * surplus)) :]
            elif whole and self.pending:
                self.pending.pop(0)
            elif self.turns:
                self.turns.pop(0)
            elif whole and self.summary:
                self.summary = ""
            else:
                return

    def _short_enough(self, summary: str) -> str:
        budget = self.config.budget
        if budget.summary_max_tokens == 0:
            return ""
        while summary and (tokens := self._estimate(summary)) > budget.summary_max_tokens:
            if budget.overflow_policy == "error":
                raise MemoryBudgetExceeded(
                    f"the summary needs {tokens} tokens; summary_max_tokens is {budget.summary_max_tokens}"
                )
            kept = min(len(summary) - 1, max(1, int(len(summary) * budget.summary_max_tokens / tokens)))
            summary = summary[len(summary) - kept :]
        return summary

    # -------------------------------------------------------------------------------------------------- stored form

    def dump(self, health: MemoryHealth) -> dict[str, Any]:
        """Return the stored form."""
        return {
            "version": STATE_VERSION,
            "health": health.value,
            "summary": self.summary,
            "turns": [dump(turn) for turn in self.turns],
            "pending": [dump(turn) for turn in self.pending],
            "backlog": [dump(turn) for turn in self.backlog],
            "config_snapshot": self.config.snapshot(),
        }

    @classmethod
    def load(cls, config: ShortTermMemoryConfig, state: Mapping[str, Any]) -> tuple[Self, MemoryHealth]:
        """Restore the contents and health from the stored form. Raise InvalidMemoryState."""
        if state.get("version") != STATE_VERSION:
            raise InvalidMemoryState(
                f"the stored memory has version {state.get('version')!r}; this Keelbolt reads version {STATE_VERSION}"
            )
        try:
            health = MemoryHealth(str(state.get("health")))
        except ValueError as error:
            raise InvalidMemoryState(f"unknown memory health {state.get('health')!r}") from error
        contents = cls(config)
        contents.summary = str(state.get("summary") or "")
        contents.turns = _turns(state, "turns")
        contents.pending = _turns(state, "pending")
        contents.backlog = _turns(state, "backlog")
        return contents, health


def _turns(state: Mapping[str, Any], zone: str) -> list[ConversationTurn]:
    stored = state.get(zone) or []
    if not isinstance(stored, Sequence) or isinstance(stored, str):
        raise InvalidMemoryState(f"{zone} must be a list")
    return [load(turn) for turn in stored]
