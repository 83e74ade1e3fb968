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
from keelbolt.state.sessions.context import SessionContext, hash_context
from keelbolt.state.sessions.feed import Subscription
from keelbolt.state.sessions.inbox import SteeringInbox
from keelbolt.state.sessions.limits import SessionLimits
from keelbolt.state.sessions.manager import SessionManager
from keelbolt.state.sessions.notifications import NotificationAction, NotificationPayload
from keelbolt.state.sessions.owned import OwnedTasks
from keelbolt.state.sessions.patches import ContextPatch, MergeStrategy, PendingContextPatch, has_diverged
from keelbolt.state.sessions.policy import ControlPolicy
from keelbolt.state.sessions.recovery import PROCESS_DIED
from keelbolt.state.sessions.registry import TaskRegistry
from keelbolt.state.sessions.results import TaskPipeline, TaskResult, TaskRuntime
from keelbolt.state.sessions.session import StreamingSession
from keelbolt.state.sessions.telemetry import (
    LoggingTaskTelemetrySink,
    NoOpTaskTelemetrySink,
    TaskTelemetryEvent,
    TaskTelemetrySink,
)
from keelbolt.state.sessions.telemetry_exports import OpenTelemetryTaskTelemetrySink, PrometheusTaskTelemetrySink
from keelbolt.state.sessions.transport import SessionConnection, SessionTransport

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
