"""The adapter of turn callbacks that the suite checks."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from keelbolt.conformance.expect import broken
from keelbolt.conformance.subject import ConformancePlace, ConformanceSubject
from keelbolt.conformance.suite import Suite
from keelbolt.errors import InvalidValue
from keelbolt.turns.callbacks import CALLBACKS
from keelbolt.turns.context import TurnContext, TurnInput
from keelbolt.turns.events import Emitter
from keelbolt.turns.tools import ToolRegistry

CAPABILITIES = {
    "unit_of_work": "unit_of_work(ctx)",
    "group": "replace_tool_call_group_callback",
    "gates": "gates (a gate store)",
}


def stash_of(tenant: str, thread: str) -> Mapping[str, Any]:
    """The default stash of a turn: tenant and thread under every usual name."""
    return {"scope": {"tenant": tenant, "thread": thread}, "tenant": tenant, "thread": thread}


class TurnCallbacksCase:
    """The argument of a law: the callbacks of an adapter, and turns that call them."""

    def __init__(
        self, subject: TurnCallbacksSubject, callbacks: Mapping[str, Any], unit_of_work: Any, gates: Any = None
    ) -> None:
        self.subject = subject
        self.callbacks = callbacks
        self.unit_of_work = unit_of_work
        self.gates = gates

    def turn(self, thread: str = "thread-1", *, tenant: str = "tenant-1", turn_id: str | None = None) -> TurnContext:
        """A new turn of this thread (or the turn with this id again), whose methods call the callbacks."""
        missing = [name for name, callback in CALLBACKS.items() if callback.required and name not in self.callbacks]
        if missing:
            broken(f"the adapter has no {missing[0]}")
        given = TurnInput(system_prompt="a law", stash=self.subject.stash(tenant, thread), turn_id=turn_id)
        return TurnContext(
            given, callbacks=self.callbacks, tools=ToolRegistry(()), emitter=Emitter(), gate_store=self.gates
        )


@dataclass(frozen=True, slots=True)
class TurnCallbacksPlace(ConformancePlace["TurnCallbacksSubject"]):
    """One set of data of an adapter."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[TurnCallbacksCase]:
        """An adapter on the data of this place, left at the end if it is a context manager."""
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
            yield TurnCallbacksCase(
                self.subject, callbacks, getattr(made, "unit_of_work", None), getattr(made, "gates", None)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCallbacksSubject(ConformanceSubject[TurnCallbacksPlace]):
    """An adapter to check. ``make(place)`` returns a mapping of the callbacks, an object with ``callbacks()`` (and
    perhaps ``unit_of_work(ctx)`` and ``gates``), or an async context manager of one of them.

    ``stash(tenant, thread)`` is the stash of a turn. ``scoped=False``: the adapter serves one thread, and the laws
    about several don't apply. ``capabilities`` are found by making an adapter.
    """

    stash: Callable[[str, str], Mapping[str, Any]] = stash_of
    scoped: bool = True
    capabilities: frozenset[str] | None = None

    place_class: ClassVar[type[TurnCallbacksPlace]] = TurnCallbacksPlace
    declared: ClassVar[tuple[str, ...]] = ("persistent", "scoped")

    def has(self, needs: str) -> bool:
        assert self.capabilities is not None, "not probed"
        return needs in self.capabilities

    def describe(self, needs: str) -> str:
        return CAPABILITIES[needs]

    async def probed(self) -> Self:
        """The same subject with the capabilities of its adapter."""
        if self.capabilities is not None:
            return self
        async with self.place() as place, place.open() as case:
            found = {
                "unit_of_work": case.unit_of_work is not None,
                "group": case.callbacks.get(CAPABILITIES["group"]) is not None,
                "gates": case.gates is not None,
            }
        return replace(self, capabilities=frozenset(name for name, there in found.items() if there))

    @classmethod
    def from_factory(cls, factory: Callable[..., Any], name: str) -> Self:
        """A subject whose adapters the factory returns."""
        return cls(name, lambda _place: factory())


SUITE: Suite[TurnCallbacksPlace, TurnCallbacksCase] = Suite(
    "Laws of the turn callbacks", TurnCallbacksSubject, "keelbolt.conformance.turn_callbacks.laws"
)
law, place_law = SUITE.law, SUITE.place_law
