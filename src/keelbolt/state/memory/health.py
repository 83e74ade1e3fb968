"""The health of summarising, and its transitions.

    healthy ──failure──▶ retry ──too many──▶ degraded ──interval over──▶ recovering ──success──▶ healthy
                           └──success──▶ healthy   ▲────────failure──────────┘

A degraded memory keeps only its recent turns; older turns wait in a backlog.
"""

from __future__ import annotations

from enum import Enum


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
