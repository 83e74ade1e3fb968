"""A law about a StateStore: what is checked, and how a law is written."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from keelbolt.conformance import suite
from keelbolt.conformance.state_store.things import Things
from keelbolt.conformance.subject import named
from keelbolt.conformance.suite import Suite, new_place
from keelbolt.errors import InvalidValue
from keelbolt.state.classes import Types
from keelbolt.state.protocols import missing_capabilities

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
DECLARED = ("persistent", "processes")  # what can't be seen in a store, so its subject says it
_PROBE = "keelbolt-conformance"  # a trace by which a store is known again
_CLOSING = ("aclose", "close", "cleanup")

Make = Callable[["StatePlace"], Any]


def capabilities_of(store: object) -> frozenset[str]:
    """What a store, or a class of stores, can do beside the three methods."""
    found = {name for name, methods in CAPABILITIES.items() if not missing_capabilities(store, methods)}
    if getattr(store, "artifact_store", None) is None:  # a store may have the property and no artifacts
        found.discard("artifacts")
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class StateStoreSubject:
    """A store to be checked. ``make`` answers one (or a coroutine of one); at a place that is new it must be empty.

    ``capabilities`` are those of the store; None: they are found by making one. ``persistent``: one that is made anew
    at the same place finds what the one before has kept. ``types`` are the classes that the store is given:
    penguiflow's where it is installed. ``discard`` removes what a place left outside of its directory. ``processes``:
    several processes can have a store at one place; then ``make`` is a function of a module, which they import.
    """

    name: str
    make: Make
    capabilities: frozenset[str] | None = None
    persistent: bool = False
    types: Types | None = None
    discard: Callable[[StatePlace], Awaitable[None]] | None = None
    processes: bool = False

    def can(self, needs: str) -> bool:
        """Whether laws with these needs apply."""
        assert self.capabilities is not None, "not probed"
        if needs in DECLARED:
            return bool(getattr(self, needs))
        return needs == "base" or needs in self.capabilities

    def lacks(self, needs: str) -> str:
        """Why they do not apply."""
        if needs in DECLARED:
            return f"{self.name} is not declared with {needs}=True"
        return f"{self.name} has not all of: {', '.join(CAPABILITIES[needs])}"

    def place(self) -> AbstractAsyncContextManager[StatePlace]:
        """A new, empty place, removed afterwards."""
        return new_place(lambda name, directory: StatePlace(self, name, directory), self.discard)

    async def probed(self) -> StateStoreSubject:
        """The same, with its capabilities.

        Raises InvalidValue for what lacks one of the three methods, or answers the same data at every place.
        """
        if self.capabilities is not None:
            return self
        async with self.place() as place, place.case() as case:
            found = capabilities_of(case.store)
            if missing := missing_capabilities(case.store, CAPABILITIES["base"]):
                raise InvalidValue(
                    f"{self.name} makes a {type(case.store).__name__}, which has no {', '.join(missing)}"
                )
            used = await _used(case)
        async with self.place() as place, place.case() as case:
            used = used or await _used(case)
        if used:
            raise InvalidValue(
                f"{self.name} makes stores on data that are not empty; write a StateStoreSubject whose make keeps "
                "places apart, by place.name or place.directory"
            )
        return replace(self, capabilities=found)


@dataclass(frozen=True, slots=True)
class StatePlace:
    """One set of data: a name that no other place has, and an empty directory for whoever keeps files."""

    subject: StateStoreSubject
    name: str
    directory: Path

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Any]:
        """A store on the data of this place, closed afterwards if it can be."""
        try:
            store = self.subject.make(self)
            if inspect.isawaitable(store):
                store = await store
        except Exception as error:
            raise InvalidValue(f"{self.subject.name} made no store: {error!r}") from error
        try:
            yield store
        finally:
            close = next((getattr(store, name) for name in _CLOSING if hasattr(store, name)), None)
            closing = None if close is None else close()
            if inspect.isawaitable(closing):
                await closing

    @asynccontextmanager
    async def case(self) -> AsyncIterator[StateCase]:
        """The same, with things to keep."""
        async with self.store() as store:
            yield StateCase(store, self.subject.types or Types())


class StateCase(Things):
    """What a law is given: a store, and things to keep."""

    def __init__(self, store: Any, types: Types) -> None:
        super().__init__(types)
        self.store = store

    def can(self, capability: str) -> bool:
        """Whether the store has it."""
        return capability in capabilities_of(self.store)


async def _used(case: StateCase) -> bool:
    """Whether somebody has looked at this store before. What goes wrong here is told by the laws."""
    try:
        before = list(await case.store.load_history(_PROBE))
        await case.store.save_event(case.event(trace=_PROBE))
    except Exception:  # noqa: BLE001
        return False
    return bool(before)


StateLaw = suite.Law[StatePlace]
STATE: Suite[StatePlace] = Suite("Laws of the StateStore")

CaseLaw = Callable[[StateCase], Awaitable[None]]
PlaceLaw = Callable[[StatePlace], Awaitable[None]]


def law(needs: str = "base") -> Callable[[CaseLaw], CaseLaw]:
    """A law about one empty store that has this capability."""

    def register(function: CaseLaw) -> CaseLaw:
        async def run(place: StatePlace) -> None:
            async with place.case() as case:
                await function(case)

        STATE.register(function, needs, run)
        return function

    return register


def persistent_law(function: PlaceLaw) -> PlaceLaw:
    """A law about what is left when the store is made anew."""
    STATE.register(function, "persistent", function)
    return function


def process_law(function: PlaceLaw) -> PlaceLaw:
    """A law about several processes at one place."""
    STATE.register(function, "processes", function)
    return function


def state_subject_of(given: Any, *, name: str | None = None) -> StateStoreSubject:
    """The subject that is meant: one as it is, or a factory or class of stores (or of coroutines of them)."""
    if isinstance(given, StateStoreSubject):
        return given
    if not callable(given):
        raise InvalidValue(f"{given!r} is neither a StateStoreSubject nor a factory")
    called = name if name is not None else str(getattr(given, "__name__", type(given).__name__))
    return StateStoreSubject(called, lambda _place: given())


def load(reference: str) -> StateStoreSubject:
    """The subject that ``module:attribute`` names: a StateStoreSubject, or a factory as penguiflow-admin takes it."""
    given = named(reference)
    if not isinstance(given, StateStoreSubject) and not callable(given):
        raise InvalidValue(f"{reference!r} is a {type(given).__name__}; it must be a StateStoreSubject or a factory")
    return state_subject_of(given, name=reference)
