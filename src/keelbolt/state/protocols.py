"""The interface of a StateStore: three methods that every store has, and optional capabilities detected at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class SupportsEvents(Protocol):
    """The three methods that every store has: the specification's StateStore."""

    async def save_event(self, event: Any) -> None:
        """Save an event of a flow; a repeat is the same event."""

    async def load_history(self, trace_id: str) -> Sequence[Any]:
        """Return the events of a trace, by time and then by arrival."""

    async def save_remote_binding(self, binding: Any) -> None:
        """Save the binding of a trace to a remote task."""


@runtime_checkable
class SupportsPlannerState(Protocol):
    """Pauses of a planner, each taken once."""

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        """Save a pause under its token."""

    async def load_planner_state(self, token: str) -> dict[str, Any] | None:
        """Take the pause; None if there is none, or it was taken or has expired."""


@runtime_checkable
class SupportsMemoryState(Protocol):
    """States under keys: memories of conversations, values of tools."""

    async def save_memory_state(self, key: str, state: dict[str, Any]) -> None:
        """Save the state under this key."""

    async def load_memory_state(self, key: str) -> dict[str, Any] | None:
        """Return the state, or None."""


@runtime_checkable
class SupportsTasks(Protocol):
    """The tasks of sessions and their updates."""

    async def save_task(self, state: Any) -> None:
        """Save the current state of the task."""

    async def list_tasks(self, session_id: str) -> Sequence[Any]:
        """Return the tasks of a session in order of arrival."""

    async def save_update(self, update: Any) -> None:
        """Save an update; a repeat of its id is the same update."""

    async def list_updates(
        self, session_id: str, *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
    ) -> Sequence[Any]:
        """Return updates of a session in order of arrival."""


@runtime_checkable
class SupportsSteering(Protocol):
    """Steering events sent to running tasks."""

    async def save_steering(self, event: Any) -> None:
        """Save a steering event; a repeat of its id is the same event."""

    async def list_steering(
        self, session_id: str, *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
    ) -> Sequence[Any]:
        """Return steering events of a session in order of arrival."""


@runtime_checkable
class SupportsTrajectories(Protocol):
    """Trajectories of planners."""

    async def save_trajectory(self, trace_id: str, session_id: str, trajectory: Any) -> None:
        """Save a trajectory; it replaces an older one of the same trace and session."""

    async def get_trajectory(self, trace_id: str, session_id: str) -> Any | None:
        """Return the trajectory; None also if it belongs to another session."""

    async def list_traces(self, session_id: str, limit: int = 50) -> list[str]:
        """Return the traces of a session, the last saved first."""


@runtime_checkable
class SupportsPlannerEvents(Protocol):
    """Events that planners emit while they run."""

    async def save_planner_event(self, trace_id: str, event: Any) -> None:
        """Save a planner event; a repeat is the same event."""

    async def list_planner_events(self, trace_id: str) -> list[Any]:
        """Return the planner events of a trace in order of arrival."""


@runtime_checkable
class SupportsConversationBindings(Protocol):
    """Finds the remote task to which the next turn of a conversation belongs."""

    async def find_binding(
        self,
        *,
        router_session_id: str,
        agent_url: str,
        remote_skill: str,
        tenant_id: str | None = None,
        user_id: str | None = None,
    ) -> Any | None:
        """Return the open binding of this conversation, or None."""

    async def list_bindings(self, *, router_session_id: str) -> Sequence[Any]:
        """Return the bindings of a session."""

    async def mark_binding_terminal(self, *, trace_id: str, context_id: str | None, task_id: str) -> None:
        """Mark the binding as terminal: no further turn goes to this remote task."""


@runtime_checkable
class SupportsArtifacts(Protocol):
    """Stores bytes and long texts, too."""

    @property
    def artifact_store(self) -> Any | None:
        """The artifact store, or None."""


def missing_capabilities(store: object, methods: Sequence[str]) -> list[str]:
    """Return those of these methods that the store lacks."""
    return [method for method in methods if not hasattr(store, method)]


def require_capabilities(store: object, *, feature: str, methods: Sequence[str]) -> None:
    """Raise TypeError if the store lacks a method that the feature needs."""
    missing = missing_capabilities(store, methods)
    if missing:
        raise TypeError(f"StateStore missing {missing} required for feature={feature}")
