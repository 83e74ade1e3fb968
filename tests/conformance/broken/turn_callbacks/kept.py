"""A plain adapter in dictionaries that obeys every law; the base of the faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from keelbolt.turns.codec import PER_TURN
from keelbolt.turns.events import KINDS, Kind
from keelbolt.turns.gates import Settlement, TurnGate
from keelbolt.turns.in_memory import InMemoryMediaStore, InMemorySpoolReader, InMemorySpoolStore
from keelbolt.turns.primitives import Retrievable, SpooledArtifact, Tokenizable

FETCHES: dict[Kind, str] = {
    "message": "fetch_messages_callback",
    "memory": "fetch_memories_callback",
    "thought": "fetch_thoughts_callback",
    "tool_call": "fetch_tool_calls_callback",
    "retrievable": "fetch_retrievables_callback",
    "standing_instruction": "refresh_standing_instructions_callback",
}
Place = tuple[str, ...]


@dataclass(frozen=True)
class Row:
    key: str
    turn: str
    value: Any
    spool: str | None = None


@dataclass
class Data:
    """The data that survive a reopen."""

    rows: dict[Place, list[Row]] = field(default_factory=dict)
    spools: InMemorySpoolStore = field(default_factory=InMemorySpoolStore)
    media: InMemoryMediaStore = field(default_factory=InMemoryMediaStore)
    gates: dict[tuple[str, str], Settlement | None] = field(default_factory=dict)


class Spooled(InMemorySpoolReader):
    """A reader with the key of its bytes."""

    def __init__(self, data: bytes, key: str) -> None:
        super().__init__(data)
        self.key = key


PLACES: dict[str, Data] = {}


class Gates:
    """A gate store: settlements by turn and gate."""

    def __init__(self, data: Data) -> None:
        self.data = data

    async def open(self, _ctx: Any, gate: TurnGate) -> Settlement | None:
        return self.data.gates.setdefault((gate.turn_id, gate.id), None)

    async def settle(self, _ctx: Any, gate: TurnGate, settlement: Settlement) -> Settlement:
        found = self.data.gates.get((gate.turn_id, gate.id)) or settlement
        self.data.gates[gate.turn_id, gate.id] = found
        return found


class Kept:
    """``rows`` by tenant, thread and kind; a failed unit of work restores them."""

    def __init__(self, place: str) -> None:
        self.data = PLACES.setdefault(place, Data())
        self.gates = Gates(self.data)

    # ------------------------------------------------------------------------------------------------------- where

    def place(self, ctx: Any, kind: Kind) -> Place:
        scope = ctx.stash.get("scope")
        shared = kind in ("memory", "standing_instruction")
        return (scope["tenant"], "" if shared else scope["thread"], kind)

    def spool_key(self, ctx: Any, key: str) -> str:
        scope = ctx.stash.get("scope")
        return "/".join((scope["tenant"], scope["thread"], ctx.id, key))

    def key(self, kind: Kind, value: Any) -> str:
        return str(value) if kind == "standing_instruction" else str(value.id)

    def rows(self, ctx: Any, kind: Kind) -> list[Row]:
        return self.data.rows.setdefault(self.place(ctx, kind), [])

    def at(self, ctx: Any, kind: Kind, key: str) -> int | None:
        """Return the index of a value: that of this turn, or else the last one."""
        found = [number for number, row in enumerate(self.rows(ctx, kind)) if row.key == key]
        own = [number for number in found if self.rows(ctx, kind)[number].turn == ctx.id]
        return (own or found)[-1] if found else None

    # -------------------------------------------------------------------------------------------------- callbacks

    async def fetch(self, ctx: Any, kind: Kind) -> list[Any]:
        return [await self.read(row) for row in self.rows(ctx, kind)]

    async def read(self, row: Row) -> Any:
        if row.spool is None:
            return row.value
        reader = await self.data.spools.read(row.spool)
        assert reader is not None, "bytes of a record are kept"
        return again(row.value, SpooledArtifact(reader))

    def row(self, ctx: Any, kind: Kind, value: Any) -> Row:
        content = getattr(value, "content", None)
        reader = content.reader if isinstance(content, SpooledArtifact) else None
        return Row(self.key(kind, value), ctx.id, value, reader.key if isinstance(reader, Spooled) else None)

    async def store(self, ctx: Any, kind: Kind, value: Any) -> None:
        if kind == "standing_instruction" and self.at(ctx, kind, str(value)) is not None:
            return
        known = [row for row in self.rows(ctx, kind) if row.key == self.key(kind, value)]
        if any(row.turn == ctx.id or kind not in PER_TURN for row in known):
            return
        self.rows(ctx, kind).append(self.row(ctx, kind, value))

    async def mutate(self, ctx: Any, kind: Kind, value: Any) -> None:
        at = self.at(ctx, kind, self.key(kind, value))
        if at is None:
            await self.store(ctx, kind, value)
        else:
            old = self.rows(ctx, kind)[at]
            self.rows(ctx, kind)[at] = replace(self.row(ctx, kind, value), turn=old.turn, spool=old.spool)

    async def delete(self, ctx: Any, kind: Kind, key: str | Tokenizable) -> None:
        at = self.at(ctx, kind, str(key))
        if at is not None:
            del self.rows(ctx, kind)[at]

    async def text(self, ctx: Any, key: str, data: Any) -> Any:
        reader = await self.data.spools.write(self.spool_key(ctx, key), data)
        return Spooled(b"".join([piece async for piece in reader.stream()]), self.spool_key(ctx, key))

    async def media(self, ctx: Any, key: str, data: Any) -> Any:
        return await self.data.media.write(self.spool_key(ctx, key), data)

    async def replace_group(self, ctx: Any, ids: list[str], replacements: list[Any]) -> None:
        for key in ids:
            await self.delete(ctx, "tool_call", key)
        for value in replacements:
            await self.store(ctx, "tool_call", value)

    @asynccontextmanager
    async def unit_of_work(self, _ctx: Any) -> AsyncIterator[None]:
        before = {place: list(rows) for place, rows in self.data.rows.items()}
        try:
            yield
        except BaseException:
            self.data.rows = before
            raise

    def callbacks(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "store_media_bytes_callback": self.media,
            "store_retrievable_bytes_callback": self.text,
            "replace_tool_call_group_callback": self.replace_group,
            "fetch_tools_callback": lambda _ctx: [],
        }
        for kind in KINDS:
            found[FETCHES[kind]] = lambda ctx, kind=kind: self.fetch(ctx, kind)
            for op in ("store", "mutate", "delete"):
                change = getattr(self, op)
                found[f"{op}_{kind}_callback"] = lambda ctx, value, do=change, kind=kind: do(ctx, kind, value)
        return found


def again(value: Any, content: Any) -> Any:
    """Return the same retrievable with another content."""
    assert isinstance(value, Retrievable)
    return Retrievable(**{**{name: getattr(value, name) for name in value.__slots__}, "content": content})
