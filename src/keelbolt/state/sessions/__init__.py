"""Sessions: conversations with a context, foreground and background tasks, and steering.

    store = StateStore("sqlite:///state.db")
    async with SessionManager(state_store=store) as sessions:
        session = await sessions.get_or_create("user-1")
        await session.run_task(pipeline, query="...")

Sessions have the interface of penguiflow's sessions and do not need penguiflow. All state is in the store: another
process can open the same session and continue, and tasks of a dead process are failed or run again.
"""

from __future__ import annotations

from keelbolt.errors import SessionLimitReached, SteeringCancelled
from keelbolt.state.sessions.context import (
    ContextPatch,
    MergeStrategy,
    PendingContextPatch,
    SessionContext,
    has_diverged,
    hash_context,
)
from keelbolt.state.sessions.controls import ControlPolicy
from keelbolt.state.sessions.manager import SessionManager
from keelbolt.state.sessions.recovery import PROCESS_DIED, OwnedTasks
from keelbolt.state.sessions.runtime import (
    NotificationAction,
    NotificationPayload,
    SteeringInbox,
    TaskPipeline,
    TaskResult,
    TaskRuntime,
)
from keelbolt.state.sessions.session import StreamingSession
from keelbolt.state.sessions.tasks import SessionLimits, TaskRegistry
from keelbolt.state.sessions.telemetry import (
    LoggingTaskTelemetrySink,
    NoOpTaskTelemetrySink,
    OpenTelemetryTaskTelemetrySink,
    PrometheusTaskTelemetrySink,
    TaskTelemetryEvent,
    TaskTelemetrySink,
)
from keelbolt.state.sessions.updates import SessionConnection, SessionTransport, Subscription

__all__ = [
    "PROCESS_DIED",
    "ContextPatch",
    "ControlPolicy",
    "LoggingTaskTelemetrySink",
    "MergeStrategy",
    "NoOpTaskTelemetrySink",
    "NotificationAction",
    "NotificationPayload",
    "OpenTelemetryTaskTelemetrySink",
    "OwnedTasks",
    "PendingContextPatch",
    "PrometheusTaskTelemetrySink",
    "SessionConnection",
    "SessionContext",
    "SessionLimitReached",
    "SessionLimits",
    "SessionManager",
    "SessionTransport",
    "SteeringCancelled",
    "SteeringInbox",
    "StreamingSession",
    "Subscription",
    "TaskPipeline",
    "TaskRegistry",
    "TaskResult",
    "TaskRuntime",
    "TaskTelemetryEvent",
    "TaskTelemetrySink",
    "has_diverged",
    "hash_context",
]
