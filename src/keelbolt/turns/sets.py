"""The ordered sets of a turn or a dispatch, and the effect of writes on them.

Sets are changed in place, so that all users of a set see the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from keelbolt.errors import ArtifactIdCollision, InvalidInitialValue
from keelbolt.turns.codec import PER_TURN, PLURALS, TYPES
from keelbolt.turns.events import Kind, Op
from keelbolt.turns.primitives import Memory, Message, Retrievable, SpooledArtifact, Thought, Tokenizable, ToolCall


class Identified(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Identified)


class PrimitiveSet(Generic[T]):
    """Primitives in insertion order. `add` does not check for equal ids.

    Iteration uses a snapshot, so the set may be changed meanwhile.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: dict[int, T] = {id(item): item for item in items}  # by ``id()``, not by their ids

    def add(self, item: T) -> None:
        """Append the item; the same object is held only once."""
        self._items[_identity(item)] = item

    def discard(self, item: T) -> None:
        """Remove this object, if it is present."""
        self._items.pop(_identity(item), None)

    def clear(self) -> None:
        self._items.clear()

    def get(self, id: str) -> T | None:  # noqa: A002
        """Return the first item with this id, or None."""
        return next((item for item in self._items.values() if item.id == id), None)

    def replace_by_id(self, item: T) -> list[T]:
        """Replace the first item of the same id, remove all others of that id, or append if there is none.

        Return the removed items.
        """
        held = list(self)
        taken = [other for other in held if other.id == item.id]
        if not taken:
            self.add(item)
            return taken
        self._items.clear()
        for other in held:
            if other.id != item.id:
                self.add(other)
            elif other is taken[0]:
                self.add(item)
        return taken

    def put_in_place(self, old: T, new: T) -> None:
        """Replace this object by a new one at its position."""
        self._items = {_identity(item): item for item in (new if held is old else held for held in self)}

    def remove_by_id(self, id: str) -> T | None:  # noqa: A002
        """Remove and return the first item with this id, or return None."""
        found = self.get(id)
        if found is not None:
            self.discard(found)
        return found

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: object) -> bool:
        return _identity(item) in self._items

    def __repr__(self) -> str:
        return f"PrimitiveSet({list(self)!r})"


_identity = id  # parameters named id shadow it


class InstructionSet:
    """Standing instructions in order. Identified by their key, or without one by their text; a str is a text.

    Added instructions are copied, so that later changes to the originals have no effect.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[str | Tokenizable] = ()) -> None:
        self._items: list[Tokenizable] = []
        for item in items:
            self.add(item)

    def add(self, item: str | Tokenizable) -> None:
        """Append it, unless it is present."""
        if self._place(item) is None:
            self._items.append(Tokenizable.of(item).copy())

    def replace(self, item: str | Tokenizable) -> None:
        """Replace the instruction with the same key; add it if it has no key or none matches."""
        place = self._place(item)
        if place is None:
            self.add(item)
        else:
            self._items[place] = Tokenizable.of(item).copy()

    def discard(self, item: str | Tokenizable) -> None:
        """Remove it if it is present, or else the last one with the same text, regardless of its key."""
        place = self._place(item)
        if place is None:
            place = self._saying(str(item))
        if place is not None:
            del self._items[place]

    def clear(self) -> None:
        self._items.clear()

    def texts(self) -> list[str]:
        return [str(item) for item in self._items]

    def _place(self, item: str | Tokenizable) -> int | None:
        known = _known_by(item)
        return next((index for index, held in enumerate(self._items) if _known_by(held) == known), None)

    def _saying(self, text: str) -> int | None:
        return max((index for index, held in enumerate(self._items) if str(held) == text), default=None)

    def __iter__(self) -> Iterator[Tokenizable]:
        return iter(list(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, str | Tokenizable):
            return False
        return self._place(item) is not None or self._saying(str(item)) is not None

    def __repr__(self) -> str:
        return f"InstructionSet({self._items!r})"


def _known_by(item: str | Tokenizable) -> tuple[str | None, str | None]:
    key = item.key if isinstance(item, Tokenizable) else None
    return (None, str(item)) if key is None else (key, None)


# ------------------------------------------------------------------------------------------------------- sets of a turn


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
