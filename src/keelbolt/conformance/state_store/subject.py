"""The StateStore that the suite checks, and sample values of the classes that it gets.

A store may return other classes than it got, as long as they have the same fields.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

from pydantic import BaseModel

from keelbolt.conformance.suite import ConformancePlace, ConformanceSubject, Suite
from keelbolt.errors import InvalidValue
from keelbolt.state.classes import Types
from keelbolt.state.protocols import missing_capabilities

PAYLOAD: dict[str, Any] = {
    "text": "grüße \U0001f427",
    "whole": 2**53 + 1,
    "real": 0.1,
    "no": False,
    "none": None,
    "empty": {"dict": {}, "list": [], "text": ""},
    "deep": [{"a": [{"b": [1, "2", None]}]}],
}


class Samples:
    """Makes sample values."""

    def __init__(self, types: Types) -> None:
        self.types = types

    def event(self, ts: float = 1.0, *, trace: str | None = "trace", node: str | None = "node", **more: Any) -> Any:
        fields = {"kind": "node_success", "node_id": "node-1", "payload": {"latency_ms": 100}}
        return self.types.StoredEvent(trace_id=trace, ts=ts, node_name=node, **{**fields, **more})

    def binding(self, *, trace: str = "trace", context: str | None = "context", task: str = "task", **more: Any) -> Any:
        fields = {"agent_url": "http://worker:8080"}
        return self.types.RemoteBinding(trace_id=trace, context_id=context, task_id=task, **{**fields, **more})

    def task(self, task: str = "task", *, session: str = "session", **more: Any) -> Any:
        snapshot = self.types.TaskContextSnapshot(
            session_id=session,
            task_id=task,
            context_version=1,
            context_hash="abc123",
            llm_context={"facts": ["a"]},
            tool_context={"tenant_id": "t"},
        )
        fields = {
            "status": self.types.TaskStatus.PENDING,
            "task_type": self.types.TaskType.BACKGROUND,
            "priority": 5,
            "context_snapshot": snapshot,
            "description": "a task",
        }
        return self.types.TaskState(task_id=task, session_id=session, **{**fields, **more})

    def update(self, number: int, *, task: str = "task", session: str = "session") -> Any:
        return self.types.StateUpdate(
            session_id=session,
            task_id=task,
            update_id=f"update-{number}",
            update_type=self.types.UpdateType.PROGRESS,
            content={"step": number},
        )

    def steering(
        self, number: int, *, task: str = "task", session: str = "session", payload: dict[str, Any] | None = None
    ) -> Any:
        return self.types.SteeringEvent(
            session_id=session,
            task_id=task,
            event_id=f"event-{number}",
            event_type=self.types.SteeringEventType.USER_MESSAGE,
            payload={"text": f"hello {number}"} if payload is None else payload,
        )

    def trajectory(self, query: str = "what?") -> Any:
        return self.types.Trajectory(query=query, llm_context={"known": [1]}, tool_context={"tenant_id": "t"})

    def planner_event(self, number: int, *, ts: float = 1.0, **extra: Any) -> Any:
        return self.types.PlannerEvent(
            event_type="stream_chunk", ts=ts, trajectory_step=number, thought=f"thought {number}", extra=extra
        )

    def scope(self, session: str | None = "session", *, tenant: str | None = "t", trace: str | None = None) -> Any:
        return self.types.ArtifactScope(tenant_id=tenant, user_id="u", session_id=session, trace_id=trace)


def seen(value: Any) -> Any:
    """The fields of a value of any class."""
    if isinstance(value, BaseModel):
        return {name: seen(getattr(value, name)) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: seen(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: seen(item) for key, item in value.items()}
    return value


def ids(values: Iterable[Any], name: str) -> list[Any]:
    """One field of each value."""
    return [getattr(value, name) for value in values]


def steps(updates: Sequence[Any]) -> list[int]:
    """The step numbers of updates."""
    return [update.content["step"] for update in updates]


CAPABILITIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "base": ("save_event", "load_history", "save_remote_binding"),
        "planner_state": ("save_planner_state", "load_planner_state"),
        "memory_state": ("save_memory_state", "load_memory_state"),
        "tasks": ("save_task", "list_tasks", "save_update", "list_updates"),
        "steering": ("save_steering", "list_steering"),
        "trajectories": ("save_trajectory", "get_trajectory", "list_traces"),
        "planner_events": ("save_planner_event", "list_planner_events"),
        "artifacts": ("artifact_store",),
        "waiting_pauses": ("list_pauses", "get_pause", "cancel_pause"),
        "pause_leases": ("take_planner_state",),
        "memory_versions": ("load_memory_version",),
        "history_pages": ("iter_history", "load_history_page"),
        "bulk": ("save_events_bulk",),
        "conversations": ("find_binding", "list_bindings", "mark_binding_terminal"),
    }
)
_PROBE = "keelbolt-conformance"  # trace id by which the suite detects a store that it has used before
_CLOSING = ("aclose", "close", "cleanup")


def capabilities_of(store: object) -> frozenset[str]:
    """The capabilities of a store, or of a class of stores."""
    found = {name for name, methods in CAPABILITIES.items() if not missing_capabilities(store, methods)}
    if getattr(store, "artifact_store", None) is None:  # a store may have the property and no artifacts
        found.discard("artifacts")
    return frozenset(found)


class StateStoreCase(Samples):
    """The argument of a law: a store, and sample values to save."""

    def __init__(self, store: Any, types: Types) -> None:
        super().__init__(types)
        self.store = store

    def can(self, capability: str) -> bool:
        """Whether the store has it."""
        return capability in capabilities_of(self.store)

    async def used(self) -> bool:
        """Whether the suite has used this store before. Errors count as no: the laws report them."""
        try:
            before = list(await self.store.load_history(_PROBE))
            await self.store.save_event(self.event(trace=_PROBE))
        except Exception:  # noqa: BLE001
            return False
        return bool(before)


@dataclass(frozen=True, slots=True)
class StateStorePlace(ConformancePlace["StateStoreSubject"]):
    """One set of data of a store."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[StateStoreCase]:
        """A store on the data of this place, closed at the end if it has a method for that."""
        try:
            store = self.subject.make(self)
            if inspect.isawaitable(store):
                store = await store
        except Exception as error:
            raise InvalidValue(f"{self.subject.name} made no store: {error!r}") from error
        try:
            yield StateStoreCase(store, self.subject.types or Types())
        finally:
            close = next((getattr(store, name) for name in _CLOSING if hasattr(store, name)), None)
            closing = None if close is None else close()
            if inspect.isawaitable(closing):
                await closing


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStoreSubject(ConformanceSubject[StateStorePlace]):
    """A store to check; ``make(place)`` returns one, or a coroutine of one.

    ``capabilities`` are those of the store; None: found by making one. ``types`` are the classes that the store gets;
    default: penguiflow's if it is installed. ``processes``: several processes can open a store at one place; then
    ``make`` is a function of a module, which they import.
    """

    capabilities: frozenset[str] | None = None
    types: Types | None = None
    processes: bool = False

    place_class: ClassVar[type[StateStorePlace]] = StateStorePlace
    declared: ClassVar[tuple[str, ...]] = ("persistent", "processes")

    def has(self, needs: str) -> bool:
        assert self.capabilities is not None, "not probed"
        return needs in self.capabilities

    def describe(self, needs: str) -> str:
        return f"all of: {', '.join(CAPABILITIES[needs])}"

    async def probed(self) -> Self:
        """The same subject with the capabilities of its store.

        Raises InvalidValue if the store lacks one of the three methods, or has the same data at every place.
        """
        if self.capabilities is not None:
            return self
        async with self.place() as place, place.open() as case:
            found = capabilities_of(case.store)
            if missing := missing_capabilities(case.store, CAPABILITIES["base"]):
                raise InvalidValue(
                    f"{self.name} makes a {type(case.store).__name__}, which has no {', '.join(missing)}"
                )
            used = await case.used()
        async with self.place() as place, place.open() as case:
            used = used or await case.used()
        if used:
            raise InvalidValue(
                f"{self.name} makes stores on data that are not empty; write a StateStoreSubject whose make keeps "
                "places apart, by place.name or place.directory"
            )
        return replace(self, capabilities=found)

    @classmethod
    def from_factory(cls, factory: Callable[..., Any], name: str) -> Self:
        """A subject whose stores (or coroutines of stores) the factory returns."""
        return cls(name, lambda _place: factory())


SUITE: Suite[StateStorePlace, StateStoreCase] = Suite(
    "Laws of the StateStore", StateStoreSubject, "keelbolt.conformance.state_store.laws"
)
law, place_law = SUITE.law, SUITE.place_law
