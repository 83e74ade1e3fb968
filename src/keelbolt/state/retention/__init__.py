"""How long a store keeps what it keeps. Nothing is removed unless it is asked for, except what has expired.

await store.sweep(StateRetention(events=days(30), max_updates=10_000))
"""

from __future__ import annotations

from keelbolt.state.retention.policy import StateRetention
from keelbolt.state.retention.sweep import StateSwept, sweep_state

__all__ = ["StateRetention", "StateSwept", "sweep_state"]
