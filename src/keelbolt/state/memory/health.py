"""The health of summarising, and how it changes.

    healthy ──failure──▶ retry ──too many──▶ degraded ──interval over──▶ recovering ──success──▶ healthy
                           └──success──▶ healthy   ▲────────failure──────────┘

While it is degraded a memory only keeps its recent turns; what falls out of them waits in a backlog.
"""

from __future__ import annotations

from enum import Enum


class MemoryHealth(str, Enum):  # noqa: UP042  (str() of a member must be that of the specification's enums)
    """How summarising goes."""

    HEALTHY = "healthy"
    RETRY = "retry"
    DEGRADED = "degraded"
    RECOVERING = "recovering"


def after_failure(health: MemoryHealth, *, failures: int, attempts: int) -> MemoryHealth:
    """What it is after the ``failures``-th failure in a row, when ``attempts`` retries are allowed."""
    if health is MemoryHealth.RECOVERING or failures > attempts:
        return MemoryHealth.DEGRADED
    return MemoryHealth.RETRY


def when_loaded(health: MemoryHealth) -> MemoryHealth:
    """What it is in a process that found it stored: a recovery that another process had begun is nobody's now."""
    return MemoryHealth.DEGRADED if health is MemoryHealth.RECOVERING else health
