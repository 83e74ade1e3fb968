"""The adapter of turn callbacks that the suite checks, and sample values with their fields for comparisons."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

from keelbolt.conformance.expect import broken, equal
from keelbolt.conformance.suite import ConformancePlace, ConformanceSubject, Suite
from keelbolt.errors import InvalidValue
from keelbolt.turns.callbacks import CALLBACKS
from keelbolt.turns.codec import TurnCodec, readers_of
from keelbolt.turns.context import TurnContext, TurnInput
from keelbolt.turns.events import Emitter, Kind
from keelbolt.turns.in_memory import InMemoryMediaReader
from keelbolt.turns.primitives import (
    Identity,
    Media,
    Memory,
    Message,
    Retrievable,
    Thought,
    Tokenizable,
    ToolCall,
)
from keelbolt.turns.readers import Descriptor, answer, is_media_reader, is_spool_reader
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


# -------------------------------------------------------------------------------------------------------------- samples


AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = datetime(2027, 1, 31, 12, tzinfo=UTC)


def message(key: str, text: str = "hello", *, at: datetime = AT, **fields: Any) -> Message:
    return Message(**{"id": key, "role": "user", "content": text, "created_at": at, "updated_at": at, **fields})


def memory(key: str, text: str = "a fact", *, at: datetime = AT) -> Memory:
    return Memory(id=key, content=text, confidence=0.5, importance=0.25, created_at=at, updated_at=at)


def thought(key: str, text: str = "hmm", *, at: datetime = AT) -> Thought:
    return Thought(id=key, content=text, payload={"s": [1]}, replay_compatibility="p1", created_at=at, updated_at=at)


def tool_call(key: str, text: str = "", *, at: datetime = AT) -> ToolCall:
    """Pending without a text; with one, complete."""
    return ToolCall(
        id=key,
        tool="add",
        args={"a": 1, "b": {"c": [None, 2.5]}},
        is_complete=bool(text),
        results=text or None,
        completed_at=at if text else None,
        created_at=at,
        updated_at=at,
    )


def retrievable(key: str, text: Any = "text", *, at: datetime = AT) -> Retrievable:
    return Retrievable(
        id=key, content=text, trust_tier="third-party-public", score=0.5, source="web", created_at=at, updated_at=at
    )


def picture(reader: Any = None, *, trust_tier: Any = "third-party-private") -> Media:
    return Media(
        id="picture",
        kind="image",
        mime_type="image/png",
        filename="cat.png",
        reader=reader if reader is not None else InMemoryMediaReader(b"\x89PNG\r\n\x00" * 100),
        trust_tier=trust_tier,
        modality_hazard="opaque-perceptual",
        stash={"caption": {"value": "a cat", "trust_tier": "first-party"}},
    )


MAKE: dict[Kind, Callable[..., Any]] = {
    "message": message,
    "memory": memory,
    "thought": thought,
    "tool_call": tool_call,
    "retrievable": retrievable,
}
FETCH: dict[Kind, str] = {
    "message": "fetch_messages",
    "memory": "fetch_memories",
    "thought": "fetch_thoughts",
    "tool_call": "fetch_tool_calls",
    "retrievable": "fetch_retrievables",
    "standing_instruction": "refresh_standing_instructions",
}


def full_message(key: str) -> Message:
    """A message with all that it can hold."""
    ada = Identity(identifier=7, representation="Ada")
    return message(key, "with a picture", role="assistant", identity=ada, attachments=[picture()])


async def write(turn: TurnContext, op: str, kind: Kind, value: Any) -> None:
    await getattr(turn, f"{op}_{kind}")(value)


async def fetch(turn: TurnContext, kind: Kind) -> list[Any]:
    found = await getattr(turn, FETCH[kind])()
    if not isinstance(found, list | tuple):
        broken(f"{FETCH[kind]}_callback returned {type(found).__name__}, not a list")
    return list(found)


async def ids(turn: TurnContext, kind: Kind) -> list[str]:
    values = await fetch(turn, kind)
    return [str(value) if isinstance(value, str | Tokenizable) else value.id for value in values]


async def content(reader: Any) -> bytes:
    """All bytes that a reader reads."""
    if is_spool_reader(reader):
        return (await answer(reader.read_all())).encode()
    if not is_media_reader(reader):
        broken(f"{type(reader).__name__} is no reader: it lacks methods of one")
    return b"".join([piece async for piece in reader.stream()])


async def said(value: Any) -> Any:
    """Everything that a value says, its bytes included."""
    if isinstance(value, str | Tokenizable):
        return str(value)
    contents: dict[int, str] = {}
    for reader, _ in readers_of(value):
        contents[id(reader)] = (await content(reader)).hex()

    def describe(reader: Any) -> Descriptor:
        return Descriptor(tag="bytes", locator=contents[id(reader)])

    return TurnCodec().encode(value, describe)


async def same(found: list[Any], wanted: list[Any], what: str) -> None:
    """These say what those say."""
    equal([await said(value) for value in found], [await said(value) for value in wanted], what)


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    """The bytes as a stream."""
    for start in range(0, len(data), size):
        yield data[start : start + size]
