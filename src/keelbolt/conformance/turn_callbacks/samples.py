"""Things to keep, and what they say, for comparing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from keelbolt.conformance.expect import broken, equal
from keelbolt.turns.codec import TurnCodec, readers_of
from keelbolt.turns.context import TurnContext
from keelbolt.turns.events import Kind
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
