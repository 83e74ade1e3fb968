"""A law about the storage callbacks of turns: what is checked, and how a law is written."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from keelbolt.conformance import suite
from keelbolt.conformance.expect import broken
from keelbolt.conformance.subject import named
from keelbolt.conformance.suite import Suite, new_place
from keelbolt.errors import InvalidValue
from keelbolt.turns.buses import Emitter
from keelbolt.turns.callbacks import CALLBACKS
from keelbolt.turns.context import TurnContext, TurnInput
from keelbolt.turns.tool_registry import ToolRegistry

CAPABILITIES = {
    "unit_of_work": "unit_of_work(ctx)",
    "group": "replace_tool_call_group_callback",
    "gates": "gates (a gate store)",
}

Stash = Callable[[str, str], Mapping[str, Any]]


def stash_of(tenant: str, thread: str) -> Mapping[str, Any]:
    """How the scope of a turn is told, unless the subject says otherwise: under all the names that are usual."""
    return {"scope": {"tenant": tenant, "thread": thread}, "tenant": tenant, "thread": thread}


@dataclass(frozen=True, slots=True)
class TurnCallbacksSubject:
    """An adapter to be checked. ``make`` answers one: a mapping of the callbacks, an object with ``callbacks()`` (and
    perhaps ``unit_of_work(ctx)`` and ``gates``), or an async context manager of such; at a place that is new it must be
    empty.

    ``stash`` is what a turn of this tenant and thread has in its stash. Not ``scoped``: the adapter serves one thread,
    and the laws about several don't apply. ``persistent``: one that is made anew at the same place finds what the one
    before has kept. ``discard`` removes what a place left outside of its directory.
    """

    name: str
    make: Callable[[TurnPlace], Any]
    stash: Stash = stash_of
    scoped: bool = True
    persistent: bool = False
    capabilities: frozenset[str] | None = None
    discard: Callable[[TurnPlace], Awaitable[None]] | None = None

    def can(self, needs: str) -> bool:
        """Whether laws with these needs apply."""
        if needs in ("scoped", "persistent"):
            return bool(getattr(self, needs))
        assert self.capabilities is not None, "not probed"
        return needs == "base" or needs in self.capabilities

    def lacks(self, needs: str) -> str:
        """Why they do not apply."""
        if needs in ("scoped", "persistent"):
            return f"{self.name} is not declared {needs}"
        return f"{self.name} has no {CAPABILITIES[needs]}"

    def place(self) -> AbstractAsyncContextManager[TurnPlace]:
        """A new, empty place, removed afterwards."""
        return new_place(lambda name, directory: TurnPlace(self, name, directory), self.discard)

    async def probed(self) -> TurnCallbacksSubject:
        """The same, with its capabilities."""
        if self.capabilities is not None:
            return self
        async with self.place() as place, place.case() as case:
            found = {
                name
                for name, there in (
                    ("unit_of_work", case.unit_of_work is not None),
                    ("group", case.callbacks.get(CAPABILITIES["group"]) is not None),
                    ("gates", case.gates is not None),
                )
                if there
            }
        return replace(self, capabilities=frozenset(found))


@dataclass(frozen=True, slots=True)
class TurnPlace:
    """One set of data: a name that no other place has, and an empty directory for whoever keeps files."""

    subject: TurnCallbacksSubject
    name: str
    directory: Path

    @asynccontextmanager
    async def case(self) -> AsyncIterator[TurnCase]:
        """An adapter on the data of this place, left afterwards if it was entered."""
        async with AsyncExitStack() as stack:
            try:
                made = self.subject.make(self)
                made = await made if inspect.isawaitable(made) else made
                if hasattr(made, "__aenter__"):
                    made = await stack.enter_async_context(made)
            except Exception as error:
                raise InvalidValue(f"{self.subject.name} made no adapter: {error!r}") from error
            callbacks = made.callbacks() if hasattr(made, "callbacks") else made
            if not isinstance(callbacks, Mapping):
                raise InvalidValue(f"{self.subject.name} made {type(made).__name__}, which has no callbacks")
            yield TurnCase(self.subject, callbacks, getattr(made, "unit_of_work", None), getattr(made, "gates", None))


class TurnCase:
    """What a law is given: the callbacks, and turns to call them with."""

    def __init__(
        self, subject: TurnCallbacksSubject, callbacks: Mapping[str, Any], unit_of_work: Any, gates: Any = None
    ) -> None:
        self.subject = subject
        self.callbacks = callbacks
        self.unit_of_work = unit_of_work
        self.gates = gates

    def turn(self, thread: str = "thread-1", *, tenant: str = "tenant-1", turn_id: str | None = None) -> TurnContext:
        """A new turn of this thread (or the one of this id again), whose methods call the callbacks."""
        missing = [name for name, callback in CALLBACKS.items() if callback.required and name not in self.callbacks]
        if missing:
            broken(f"it has no {missing[0]}")
        given = TurnInput(system_prompt="a law", stash=self.subject.stash(tenant, thread), turn_id=turn_id)
        return TurnContext(
            given, callbacks=self.callbacks, tools=ToolRegistry(()), emitter=Emitter(), gate_store=self.gates
        )


TurnLaw = suite.Law[TurnPlace]
TURNS: Suite[TurnPlace] = Suite("Laws of the callbacks of turns")

CaseLaw = Callable[[TurnCase], Awaitable[None]]
PlaceLaw = Callable[[TurnPlace], Awaitable[None]]


def law(needs: str = "base") -> Callable[[CaseLaw], CaseLaw]:
    """A law about one empty adapter that can do this."""

    def register(function: CaseLaw) -> CaseLaw:
        async def run(place: TurnPlace) -> None:
            async with place.case() as case:
                await function(case)

        TURNS.register(function, needs, run)
        return function

    return register


def persistent_law(function: PlaceLaw) -> PlaceLaw:
    """A law about what is left when the adapter is made anew."""
    TURNS.register(function, "persistent", function)
    return function


def turn_subject_of(given: Any, *, name: str | None = None) -> TurnCallbacksSubject:
    """The subject that is meant: one as it is, or a factory or class of adapters."""
    if isinstance(given, TurnCallbacksSubject):
        return given
    if not callable(given):
        raise InvalidValue(f"{given!r} is neither a TurnCallbacksSubject nor a factory")
    called = name if name is not None else str(getattr(given, "__name__", type(given).__name__))
    return TurnCallbacksSubject(called, lambda _place: given())


def load(reference: str) -> TurnCallbacksSubject:
    """The subject that ``module:attribute`` names: a TurnCallbacksSubject, or a factory of adapters."""
    given = named(reference)
    if not isinstance(given, TurnCallbacksSubject) and not callable(given):
        raise InvalidValue(f"{reference!r} is a {type(given).__name__}; it must be a TurnCallbacksSubject or a factory")
    return turn_subject_of(given, name=reference)
