"""Limits of a session."""

from __future__ import annotations

from dataclasses import dataclass

from keelbolt.state.events.steering import MAX_STEERING_PAYLOAD_BYTES

LEASE_SECONDS = 15.0


@dataclass(slots=True)
class SessionLimits:
    """Limits of one session. 0 or None means no limit.

    ``max_tasks_per_session`` and ``max_background_tasks`` count unfinished tasks, ``max_concurrent_tasks`` the tasks
    that run in this process at the same time; the others wait for a turn. A process that does not renew its lease for
    ``lease_seconds`` counts as dead, and its tasks are recovered (the first session of a store sets this value).
    """

    max_tasks_per_session: int = 8
    max_background_tasks: int = 4
    max_concurrent_tasks: int = 3
    max_task_runtime_s: float | None = 900
    steering_queue_size: int = 200
    max_pending_patches: int = 32
    max_steering_payload_bytes: int = MAX_STEERING_PAYLOAD_BYTES
    max_steering_events_per_task: int = 512
    lease_seconds: float = LEASE_SECONDS
