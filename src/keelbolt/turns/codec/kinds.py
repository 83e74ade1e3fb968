"""The six kinds of primitives that a turn stores, by the names that callbacks, events and records use."""

from __future__ import annotations

from keelbolt.errors import InvalidValue
from keelbolt.turns.events import KINDS, Kind
from keelbolt.turns.primitives import Memory, Message, Retrievable, Thought, Tokenizable, ToolCall

__all__ = ["KINDS", "PER_TURN", "PLURALS", "TYPES", "Kind", "kind_of"]

TYPES: dict[Kind, type] = {
    "message": Message,
    "memory": Memory,
    "thought": Thought,
    "tool_call": ToolCall,
    "retrievable": Retrievable,
}

PLURALS: dict[Kind, str] = {
    "message": "messages",
    "memory": "memories",
    "thought": "thoughts",
    "tool_call": "tool_calls",
    "retrievable": "retrievables",
    "standing_instruction": "standing_instructions",
}

PER_TURN: frozenset[Kind] = frozenset({"thought", "tool_call"})
"""Kinds whose ids are unique only within a turn: providers restart at call_0 in every turn."""

_KINDS = {type_: kind for kind, type_ in TYPES.items()}


def kind_of(value: object) -> Kind:
    """Return the kind of a value. A str is a standing instruction, the only kind that is bare text."""
    exact = _KINDS.get(type(value))
    if exact is not None:
        return exact
    for kind, type_ in TYPES.items():
        if isinstance(value, type_):
            return kind
    if isinstance(value, str | Tokenizable):
        return "standing_instruction"
    raise InvalidValue(f"{type(value).__name__} can't be stored in a turn; the types are {', '.join(KINDS)}")
