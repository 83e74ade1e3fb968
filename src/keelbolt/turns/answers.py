"""What a user's message means at a gate. Pure.

| the message has | it means |
|---|---|
| JSON with ``answer``: ``resolve`` (and ``value``), ``reject`` or ``abort`` (and ``reason``) | just that |
| other JSON | resolve, with it |
| the text ``approve`` | resolve, with True |
| the text ``reject`` or ``reject: why`` | reject |
| text that is JSON | resolve, with it |
| other text | resolve, with the text |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Verb = Literal["resolve", "reject", "abort"]
VERBS: tuple[Verb, ...] = ("resolve", "reject", "abort")


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """``value`` is for resolve, ``reason`` for the others."""

    verb: Verb
    value: Any = None
    reason: str = ""


def read_gate_answer(text: str, data: Sequence[Any]) -> GateAnswer:
    """The answer that a message with this text and these JSON parts gives."""
    for value in data:
        if isinstance(value, Mapping) and value.get("answer") in VERBS:
            return GateAnswer(value["answer"], value.get("value"), str(value.get("reason") or ""))
        return GateAnswer("resolve", value)
    words = text.strip()
    head, _, rest = words.partition(":")
    match head.rstrip(" .!").lower():
        case "approve" if not rest.strip():
            return GateAnswer("resolve", True)
        case "reject":
            return GateAnswer("reject", reason=rest.strip() or "it was rejected")
        case _:
            pass
    try:
        return GateAnswer("resolve", json.loads(words))
    except ValueError:
        return GateAnswer("resolve", words)
