"""Shared parts of the tests of stored turns: a turn that has only a scope, and sample values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from keelbolt.turns.codec import TurnCodec, readers_of
from keelbolt.turns.in_memory import InMemoryMediaReader, InMemorySpoolReader
from keelbolt.turns.primitives import (
    Identity,
    Media,
    Memory,
    Message,
    Retrievable,
    SpooledArtifact,
    Thought,
    Tokenizable,
    ToolCall,
)
from keelbolt.turns.readers import Descriptor
from keelbolt.turns.registry import Registry

AT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


@dataclass
class Turn:
    """A turn as the storage sees it."""

    id: str = "turn-1"
    tenant: str = "acme"
    thread: str = "thread-1"
    agent: str = ""
    stash: Registry = field(init=False)

    def __post_init__(self) -> None:
        self.stash = Registry({"scope": {"tenant": self.tenant, "thread": self.thread, "agent": self.agent}})


def message(id: str = "m1", content: str | Tokenizable | None = "hello", **fields: Any) -> Message:  # noqa: A002
    return Message(**{"id": id, "role": "user", "content": content, "created_at": AT, "updated_at": AT, **fields})


def memory(id: str = "f1", importance: float = 0.5, **fields: Any) -> Memory:  # noqa: A002
    return Memory(
        **{"id": id, "content": "a fact", "confidence": 0.5, "created_at": AT, "updated_at": AT, **fields},
        importance=importance,
    )


def thought(id: str = "h1", **fields: Any) -> Thought:  # noqa: A002
    return Thought(**{"id": id, "content": "hmm", "created_at": AT, "updated_at": AT, **fields})


def tool_call(id: str = "call_0", results: Any = None, **fields: Any) -> ToolCall:  # noqa: A002
    over = results is not None
    return ToolCall(
        **{
            "id": id,
            "tool": "add",
            "args": {"a": 1},
            "created_at": AT,
            "updated_at": AT,
            "is_complete": over,
            **fields,
        },
        results=results,
        completed_at=AT if over else None,
    )


def retrievable(id: str = "r1", content: Any = "text", **fields: Any) -> Retrievable:  # noqa: A002
    return Retrievable(
        **{"id": id, "trust_tier": "first-party", "created_at": AT, "updated_at": AT, **fields}, content=content
    )


def image(reader: Any, **fields: Any) -> Media:
    return Media.user_attachment(
        **{"id": "i1", "kind": "image", "mime_type": "image/png", "filename": "cat.png", **fields}, reader=reader
    )


MAKE: dict[str, Callable[..., Any]] = {
    "message": message,
    "memory": memory,
    "thought": thought,
    "tool_call": tool_call,
    "retrievable": retrievable,
}
PLAIN = list(MAKE)


def one_of_each() -> Iterator[tuple[str, Any]]:
    """Return a value of each kind with all of its fields: kind and value."""
    picture = image(
        InMemoryMediaReader(b"\x89PNG" * 1000),
        source="upload",
        stash={"caption": {"value": {"text": "a cat", "n": [1, 2.5, None]}, "trust_tier": "first-party"}},
    )
    text = SpooledArtifact(InMemorySpoolReader(b"one\ntwo\r\n\xff three"))
    yield "message", message("m-text", "héllo \ud83d 🐈")
    yield (
        "message",
        message(
            "m/all %~",
            role="assistant",
            content=Tokenizable("keyed", key="k"),
            attachments=[picture],
            identity=Identity(identifier=7, representation="Ada"),
        ),
    )
    yield "message", message("m-media", None, attachments=[picture, picture])
    yield "memory", memory("f-int", 1, confidence=0)
    yield "memory", memory("f-float", 0.25, confidence=0.75)
    yield "thought", thought("h-plain")
    yield "thought", thought("h-all", content="", identity="planner", payload={"sig": "x"}, replay_compatibility="p1")
    yield "tool_call", tool_call("c-pending")
    yield "tool_call", tool_call("c-text", "42", is_error=True, from_artifact_tool=True, inline=True)
    yield "tool_call", tool_call("c-nothing", "")
    yield "tool_call", tool_call("c-spool", text, payload=[1], replay_compatibility="p1", checksum="abc")
    yield "tool_call", tool_call("c-spools", [text, text], args={"b": {"z": 1, "a": [1.5, "x"]}})
    yield "tool_call", tool_call("c-media", picture)
    yield "tool_call", tool_call("c-medias", [picture])
    yield "retrievable", retrievable("r-text", source="web", kind="page", score=0.5)
    yield "retrievable", retrievable("r-spool", text, trust_tier="third-party-public")
    yield "standing_instruction", "be kind"
    yield "standing_instruction", Tokenizable("be brief", key="style")


FETCHES = {
    "message": "fetch_messages_callback",
    "memory": "fetch_memories_callback",
    "thought": "fetch_thoughts_callback",
    "tool_call": "fetch_tool_calls_callback",
    "retrievable": "fetch_retrievables_callback",
    "standing_instruction": "refresh_standing_instructions_callback",
}


class Calls:
    """The callbacks of a storage for one turn, by their short names: ``calls.store_message(value)``."""

    def __init__(self, callbacks: Any, turn: Any) -> None:
        self._callbacks = callbacks
        self._turn = turn

    def __getattr__(self, name: str) -> Callable[..., Any]:
        callback = self._callbacks[f"{name}_callback"]
        return lambda *args: callback(self._turn, *args)

    async def do(self, op: str, kind: str, value: Any) -> None:
        await self._callbacks[f"{op}_{kind}_callback"](self._turn, value)

    async def fetch(self, kind: str) -> list[Any]:
        found: list[Any] = await self._callbacks[FETCHES[kind]](self._turn)
        return found

    async def ids(self, kind: str = "message") -> list[str]:
        return [str(value) if kind == "standing_instruction" else value.id for value in await self.fetch(kind)]


async def comparable(value: Any) -> Any:
    """Return all content of a value, including bytes, for comparison."""
    contents: dict[int, bytes] = {}

    def describe(reader: Any) -> Descriptor:
        return Descriptor(tag="bytes", locator=contents[id(reader)].hex())

    if not isinstance(value, str):
        for reader, _ in readers_of(value):
            contents[id(reader)] = b"".join([piece async for piece in reader.stream()])  # type: ignore[union-attr]
    return type(value).__name__.replace("str", "Tokenizable"), TurnCodec().encode(value, describe)


async def endless(*pieces: bytes, fail_after: int) -> AsyncIterator[bytes]:
    """A stream that fails."""
    for number in range(fail_after):
        yield pieces[number % len(pieces)]
        await asyncio.sleep(0)
    raise ConnectionError("the stream broke off")
