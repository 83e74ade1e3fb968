"""The six sets of a turn or a dispatch, and the effect of writes on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from keelbolt.errors import ArtifactIdCollision, InvalidInitialValue
from keelbolt.turns.codec.kinds import PER_TURN, PLURALS, TYPES
from keelbolt.turns.events import Kind, Op
from keelbolt.turns.primitives import Memory, Message, Retrievable, SpooledArtifact, Thought, Tokenizable, ToolCall
from keelbolt.turns.sets import InstructionSet, PrimitiveSet


@dataclass(frozen=True, slots=True, eq=False)
class SetWrite:
    """One store, mutate or delete; ``value`` is the primitive, or the id of the deleted one.

    A ``replace`` replaces tool calls: its value is their ids and the new calls.
    """

    op: Op | Literal["replace"]
    kind: Kind
    value: Any

    @property
    def callback(self) -> str:
        return "replace_tool_call_group_callback" if self.op == "replace" else f"{self.op}_{self.kind}_callback"

    def __str__(self) -> str:
        if self.op == "replace":
            return f"replace tool_call {', '.join(self.value[0])}"
        shown = getattr(self.value, "id", None) or str(self.value)
        return f"{self.op} {self.kind} {shown if len(shown) <= 40 else f'{shown[:37]}...'}"


def checked_write(op: Op, kind: Kind, value: Any) -> SetWrite:
    """Return a write after checking the type of its value; the current text of an instruction is frozen."""
    called = f"{op}_{kind}"
    if kind == "standing_instruction":
        if not isinstance(value, str | Tokenizable) or not value:
            raise InvalidInitialValue(f"{called} takes a non-empty str or Tokenizable, not {value!r}")
        return SetWrite(op, kind, value.frozen() if isinstance(value, Tokenizable) else value)
    if op == "delete":
        if not isinstance(value, str) or not value:
            raise InvalidInitialValue(f"{called} takes the id of the value to delete, not {type(value).__name__}")
    elif not isinstance(value, TYPES[kind]):
        raise InvalidInitialValue(f"{called} takes a {TYPES[kind].__name__}, not {type(value).__name__}")
    return SetWrite(op, kind, value)


class TurnSets:
    """Messages, memories, thoughts, tool calls, retrievables and standing instructions."""

    __slots__ = ("_own", "instructions", "memories", "messages", "retrievables", "thoughts", "tool_calls", "turn_id")

    def __init__(
        self,
        *,
        messages: Iterable[Message] = (),
        memories: Iterable[Memory] = (),
        thoughts: Iterable[Thought] = (),
        tool_calls: Iterable[ToolCall] = (),
        retrievables: Iterable[Retrievable] = (),
        instructions: Iterable[str | Tokenizable] = (),
        turn_id: str | None = None,
    ) -> None:
        self.turn_id = turn_id
        self._own: dict[int, Any] = {}  # calls and thoughts written in this run, by ``id()``
        self.messages = PrimitiveSet(messages)
        self.memories = PrimitiveSet(memories)
        self.thoughts = PrimitiveSet(thoughts)
        self.tool_calls = PrimitiveSet(tool_calls)
        self.retrievables = PrimitiveSet(retrievables)
        self.instructions = InstructionSet(instructions)

    def copy(self) -> TurnSets:
        """Return new sets with the same primitives; instructions are copied, since their text is mutable."""
        copied = TurnSets(
            messages=self.messages,
            memories=self.memories,
            thoughts=self.thoughts,
            tool_calls=self.tool_calls,
            retrievables=self.retrievables,
            instructions=self.instructions,
            turn_id=self.turn_id,
        )
        copied._own = dict(self._own)
        return copied

    def own_tool_calls(self) -> PrimitiveSet[ToolCall]:
        """Return the calls of this turn."""
        return PrimitiveSet(call for call in self.tool_calls if self._is_own(call))

    def _is_own(self, value: Any) -> bool:
        return id(value) in self._own or (self.turn_id is not None and value.turn_id == self.turn_id)

    def apply(self, write: SetWrite) -> None:
        """Apply this write to the sets."""
        if write.kind == "standing_instruction":
            change = {"store": self.instructions.add, "mutate": self.instructions.replace}
            change.get(write.op, self.instructions.discard)(write.value)
            return
        if write.op == "replace":
            ids, replacements = write.value
            for one in ids:
                self._apply("delete", write.kind, one)
            for call in replacements:
                self._apply("store", write.kind, call)
        else:
            self._apply(write.op, write.kind, write.value)

    def _apply(self, op: Op, kind: Kind, value: Any) -> None:
        """Apply it as storage will: a value that is stored again, for example after a crash, is there once."""
        held = self._set(kind)
        known = value if op == "delete" else value.id
        found = self._found(held, kind, known, stored=op == "store")
        if op == "delete":
            if found is not None:
                held.discard(found)
            return
        if kind in PER_TURN:
            self._own[id(value)] = value
        if found is None:
            held.add(value)
        elif kind in PER_TURN:
            held.put_in_place(found, value)
        else:
            held.replace_by_id(value)

    def _found(self, held: PrimitiveSet[Any], kind: Kind, known: str, *, stored: bool) -> Any:
        """Return the primitive that a write to this id changes: this turn's call or thought, or else the last one."""
        named = [item for item in held if item.id == known]
        if kind not in PER_TURN:
            return named[0] if named else None
        own = [item for item in named if self._is_own(item)]
        if own or stored:
            return own[-1] if own else None
        return named[-1] if named else None

    def check_artifact_ids(self, write: SetWrite) -> None:
        """Refuse an artifact with the id of another kind: reading artifacts by id would be ambiguous."""
        if write.op not in {"store", "mutate"} or write.kind not in {"tool_call", "retrievable"}:
            return
        others: PrimitiveSet[Any] = self.retrievables if write.kind == "tool_call" else self.tool_calls
        other = others.get(write.value.id)
        if other is not None and _is_artifact(write.value) and _is_artifact(other):
            raise ArtifactIdCollision(
                f"{write.kind} {write.value.id} has the id of a {type(other).__name__}, and both are artifacts; "
                "give one of them another id"
            )

    def _set(self, kind: Kind) -> PrimitiveSet[Any]:
        held: PrimitiveSet[Any] = getattr(self, PLURALS[kind])
        return held


def _is_artifact(value: ToolCall | Retrievable) -> bool:
    content = value.results if isinstance(value, ToolCall) else value.content
    return isinstance(content, SpooledArtifact | tuple)
