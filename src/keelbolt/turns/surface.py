"""The common API of turn contexts and dispatch contexts: reads, writes, bytes, sets, events and abort."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from keelbolt.errors import InvalidInitialValue
from keelbolt.turns.abort import AbortController, AbortSignal
from keelbolt.turns.codec import PLURALS, TYPES
from keelbolt.turns.events import Emitter, Kind, Op, TextReport, ToolCallReport, ToolExecutionEnd, ToolExecutionStart
from keelbolt.turns.primitives import Memory, Message, Moment, Retrievable, Thought, Tokenizable, ToolCall
from keelbolt.turns.readers import ByteSource, MediaReader, SpoolReader
from keelbolt.turns.schemas import Schema
from keelbolt.turns.sets import InstructionSet, PrimitiveSet, TurnSets

if TYPE_CHECKING:
    from keelbolt.turns.tools import Tool

Written: TypeAlias = Coroutine[Any, Any, Any]


class Reads(ABC):
    """Fetches read storage; nothing is fetched automatically, and fetched values are not added to the sets."""

    __slots__ = ()

    @abstractmethod
    async def _call(self, callback: str, *arguments: Any) -> Any: ...

    async def fetch_memories(self) -> Sequence[Memory]:
        found: Sequence[Memory] = fetched("fetch_memories_callback", await self._call("fetch_memories_callback"))
        return found

    async def fetch_messages(self) -> Sequence[Message]:
        found: Sequence[Message] = fetched("fetch_messages_callback", await self._call("fetch_messages_callback"))
        return found

    async def fetch_thoughts(self) -> Sequence[Thought]:
        found: Sequence[Thought] = fetched("fetch_thoughts_callback", await self._call("fetch_thoughts_callback"))
        return found

    async def fetch_tool_calls(self) -> Sequence[ToolCall]:
        found: Sequence[ToolCall] = fetched("fetch_tool_calls_callback", await self._call("fetch_tool_calls_callback"))
        return found

    async def fetch_tools(self) -> Sequence[Tool]:
        found: Sequence[Tool] = fetched("fetch_tools_callback", await self._call("fetch_tools_callback"))
        return found

    async def fetch_retrievables(self) -> Sequence[Retrievable]:
        found: Sequence[Retrievable] = fetched(
            "fetch_retrievables_callback", await self._call("fetch_retrievables_callback")
        )
        return found

    async def refresh_standing_instructions(self) -> Sequence[str | Tokenizable]:
        found: Sequence[str | Tokenizable] = fetched(
            "refresh_standing_instructions_callback", await self._call("refresh_standing_instructions_callback")
        )
        return found

    async def store_media_bytes(self, id: str, data: ByteSource) -> MediaReader:  # noqa: A002
        """Store these bytes now, never deferred, and return their reader; then store the primitive that owns them."""
        reader: MediaReader = await self._call("store_media_bytes_callback", id, data)
        return reader

    async def store_retrievable_bytes(self, id: str, data: ByteSource) -> SpoolReader:  # noqa: A002
        """Store this text now, never deferred, and return its reader; then store the retrievable that owns it."""
        reader: SpoolReader = await self._call("store_retrievable_bytes_callback", id, data)
        return reader

    async def _replace(self, ids: Sequence[str], replacements: Sequence[ToolCall], *, together: bool) -> Any:
        if together:
            return await self._call("replace_tool_call_group_callback", ids, replacements)
        deleted: list[str] = []
        try:
            for one in ids:
                await self._call("delete_tool_call_callback", one)
                deleted.append(one)
            for call in replacements:
                await self._call("store_tool_call_callback", call)
        except Exception as error:
            error.deleted_ids = tuple(deleted)  # type: ignore[attr-defined]
            raise
        return None


class Writes(ABC):
    """Store, mutate and delete, for each of the six kinds."""

    __slots__ = ()

    @abstractmethod
    def _write(self, op: Op, kind: Kind, value: Any) -> Written: ...

    def store_message(self, message: Message) -> Written:
        return self._write("store", "message", message)

    def mutate_message(self, message: Message) -> Written:
        return self._write("mutate", "message", message)

    def delete_message(self, id: str) -> Written:  # noqa: A002
        return self._write("delete", "message", id)

    def store_memory(self, memory: Memory) -> Written:
        return self._write("store", "memory", memory)

    def mutate_memory(self, memory: Memory) -> Written:
        return self._write("mutate", "memory", memory)

    def delete_memory(self, id: str) -> Written:  # noqa: A002
        return self._write("delete", "memory", id)

    def store_thought(self, thought: Thought) -> Written:
        return self._write("store", "thought", thought)

    def mutate_thought(self, thought: Thought) -> Written:
        return self._write("mutate", "thought", thought)

    def delete_thought(self, id: str) -> Written:  # noqa: A002
        return self._write("delete", "thought", id)

    def store_tool_call(self, tool_call: ToolCall) -> Written:
        return self._write("store", "tool_call", tool_call)

    def mutate_tool_call(self, tool_call: ToolCall) -> Written:
        return self._write("mutate", "tool_call", tool_call)

    def delete_tool_call(self, id: str) -> Written:  # noqa: A002
        return self._write("delete", "tool_call", id)

    def store_retrievable(self, retrievable: Retrievable) -> Written:
        return self._write("store", "retrievable", retrievable)

    def mutate_retrievable(self, retrievable: Retrievable) -> Written:
        return self._write("mutate", "retrievable", retrievable)

    def delete_retrievable(self, id: str) -> Written:  # noqa: A002
        return self._write("delete", "retrievable", id)

    def store_standing_instruction(self, value: str | Tokenizable) -> Written:
        return self._write("store", "standing_instruction", value)

    def mutate_standing_instruction(self, value: str | Tokenizable) -> Written:
        return self._write("mutate", "standing_instruction", value)

    def delete_standing_instruction(self, value: str | Tokenizable) -> Written:
        return self._write("delete", "standing_instruction", value)


class BaseContext(Reads, Writes):
    """Sets, events and abort of both contexts."""

    __slots__ = ("_controller", "_emitter", "holdings")

    holdings: TurnSets
    _controller: AbortController
    _emitter: Emitter

    @property
    def abort_signal(self) -> AbortSignal:
        return self._controller.signal

    @property
    def aborted(self) -> bool:
        return self._controller.signal.aborted

    def abort(self, reason: object = None) -> None:
        """Stop without an error: the remaining work is skipped. Aborting a dispatch does not abort its turn."""
        self._controller.abort(reason)

    @property
    def standing_instructions(self) -> InstructionSet:
        return self.holdings.instructions

    @property
    def turn_messages(self) -> PrimitiveSet[Message]:
        return self.holdings.messages

    @property
    def turn_memories(self) -> PrimitiveSet[Memory]:
        return self.holdings.memories

    @property
    def turn_thoughts(self) -> PrimitiveSet[Thought]:
        return self.holdings.thoughts

    @property
    def turn_tool_calls(self) -> PrimitiveSet[ToolCall]:
        return self.holdings.tool_calls

    @property
    def own_tool_calls(self) -> PrimitiveSet[ToolCall]:
        """The calls of this turn among `turn_tool_calls`: earlier turns may have calls with the same ids."""
        return self.holdings.own_tool_calls()

    @property
    def turn_retrievables(self) -> PrimitiveSet[Retrievable]:
        return self.holdings.retrievables

    @abstractmethod
    async def _pass(self, **gate: Any) -> Any: ...

    async def wait_for(
        self,
        *,
        id: str | None = None,  # noqa: A002
        reason: str,
        payload: Any = None,
        schema: Schema | None = None,
        timeout_ms: int | None = None,
        created_at: Moment | None = None,
    ) -> Any:
        """Open a gate and wait until it is settled; return its value, or raise its error."""
        return await self._pass(
            id=id, reason=reason, payload=payload, schema=schema, timeout_ms=timeout_ms, created_at=created_at
        )

    def emit_message(self, report: TextReport) -> None:
        self._emitter.emit("message", report)

    def emit_thought(self, report: TextReport) -> None:
        self._emitter.emit("thought", report)

    def emit_tool_call(self, report: ToolCallReport) -> None:
        self._emitter.emit("tool_call", report)

    def emit_tool_execution_start(self, event: ToolExecutionStart) -> None:
        self._emitter.emit("tool_execution_start", event)

    def emit_tool_execution_end(self, event: ToolExecutionEnd) -> None:
        self._emitter.emit("tool_execution_end", event)


# -------------------------------------------------------------------------------------------------------------- fetched


_TYPES: dict[str, tuple[type, ...]] = {f"fetch_{PLURALS[kind]}_callback": (type_,) for kind, type_ in TYPES.items()}
_TYPES["refresh_standing_instructions_callback"] = (str, Tokenizable)


def fetched(callback: str, found: Any) -> Sequence[Any]:
    """Return the fetched values; raise InvalidInitialValue if they are not a list of the callback's type."""
    if found is None:
        raise InvalidInitialValue(f"{callback} returned None; return a list, empty if there are no values")
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise InvalidInitialValue(f"{callback} returned {type(found).__name__}; return a list")
    values = found if isinstance(found, Sequence) else list(found)
    wanted = _TYPES.get(callback)
    for value in values if wanted is not None else ():
        if not isinstance(value, wanted or object):
            name = " or ".join(type_.__name__ for type_ in wanted or ())
            make = f"; make them with {name}(**row)" if isinstance(value, Mapping) else ""
            raise InvalidInitialValue(f"{callback} returned a list with {type(value).__name__}, not {name}{make}")
    return values
