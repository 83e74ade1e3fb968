"""Interprets a user's message at a gate, and builds the reply hint for the user. Pure.

| the message has | it means |
|---|---|
| JSON with ``answer``: ``resolve`` (and ``value``), ``reject`` or ``abort`` (and ``reason``) | exactly that |
| other JSON | resolve, with it |
| the text ``reject`` or ``reject: why`` | reject |
| a word for yes | resolve with True, if the schema accepts it or there is none |
| a word for no, alone or with a reason | resolve with False, if the schema accepts it or there is none; else reject |
| text that the schema accepts: as text, as a member of its enum, as JSON | resolve, with that |
| other text | resolve, with the text |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from keelbolt.turns.schemas import checker

Verb = Literal["resolve", "reject", "abort"]
VERBS: tuple[Verb, ...] = ("resolve", "reject", "abort")

YES = frozenset(("yes", "y", "yep", "yeah", "yup", "ok", "okay", "sure", "approve", "approved", "accept", "accepted"))
YES |= {"agree", "agreed", "confirm", "confirmed", "true"}
NO = frozenset(("no", "n", "nope", "nah", "never", "deny", "denied", "decline", "declined", "refuse", "refused"))
NO |= {"disagree", "cancel", "stop", "false"}
_REJECT = re.compile(r"reject(?:ed)?\s*(?:[.!]*\s*$|:\s*(?P<why>.*)$)", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"(?P<word>[a-z]+)\s*(?P<rest>$|[.!,;:\u2013\u2014-].*$)", re.IGNORECASE | re.DOTALL)
DECLINED = "the request was declined"
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """An answer to a gate. ``value`` is for resolve, ``reason`` for reject and abort."""

    verb: Verb
    value: Any = None
    reason: str = ""


def read_gate_answer(text: str, data: Sequence[Any], schema: Mapping[str, Any] | None = None) -> GateAnswer:
    """Return the answer that a message with this text and these JSON parts gives to a gate with this JSON Schema."""
    for value in data:
        if isinstance(value, Mapping) and value.get("answer") in VERBS:
            return GateAnswer(value["answer"], value.get("value"), str(value.get("reason") or ""))
        return GateAnswer("resolve", value)
    words = text.strip()
    if found := _REJECT.fullmatch(words):
        return GateAnswer("reject", reason=(found["why"] or "").strip() or DECLINED)
    takes = _taking(schema)
    for value in _readings(words, schema):
        if takes(value):
            return GateAnswer("resolve", value)
    if schema is not None and _said(words) is False:
        return GateAnswer("reject", reason=words)
    return GateAnswer("resolve", _json(words, words))


def reply_hint(schema: Mapping[str, Any] | None) -> str:
    """Return a hint on what the user can type; empty if any text is an answer."""
    if schema is None:
        return 'Reply "yes", "no", or in your own words.'
    takes = _taking(schema)
    if takes(True) and not takes("text"):
        return 'Reply "yes" or "no".'
    if isinstance(members := schema.get("enum"), list):
        return f"Reply with one of: {', '.join(map(str, members))}."
    match schema.get("type"):
        case "string":
            return ""
        case "integer" | "number":
            return 'Reply with a number, or "reject: why".'
        case "object":
            shape = {name: _kind(inner) for name, inner in dict(schema.get("properties", {})).items()}
            return f'Reply with JSON like {json.dumps(shape, ensure_ascii=False)}, or "reject: why".'
        case _:
            return 'Reply with JSON that fits the schema, or "reject: why".'


def _readings(words: str, schema: Mapping[str, Any] | None) -> Iterator[Any]:
    """Yield the values that the text can represent, the likeliest first."""
    said = _said(words)
    if said is not None:
        yield said
    if schema is None:
        yield _json(words, words)
        return
    yield words
    for member in schema.get("enum", ()):
        if isinstance(member, str) and member.casefold() == words.rstrip(".!").casefold():
            yield member
    value = _json(words, _MISSING)
    if value is not _MISSING:
        yield value


def _said(words: str) -> bool | None:
    """Return True for a yes, False for a no (a reason may follow), None for other text, such as a conditional yes."""
    found = _WORD.fullmatch(words)
    if found is None:
        return None
    word = found["word"].lower()
    if word in NO:
        return False
    return True if word in YES and not found["rest"].strip(" .!") else None


def _taking(schema: Mapping[str, Any] | None) -> Callable[[Any], bool]:
    if schema is None:
        return lambda _value: True
    try:
        check = checker(schema)
    except ValueError:  # beyond the supported keywords: the turn checks the answer
        return lambda value: _is(schema.get("type"), value)

    def takes(value: Any) -> bool:
        try:
            check(value)
        except (TypeError, ValueError):
            return False
        return True

    return takes


def _is(kind: object, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    kinds: dict[object, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "object": dict,
        "array": list,
    }
    return isinstance(value, kinds.get(kind, (int, float, dict, list)))


def _kind(schema: Any) -> str:
    kind = schema.get("type", "value") if isinstance(schema, Mapping) else "value"
    return f"<{kind}>"


def _json(words: str, otherwise: Any) -> Any:
    try:
        return json.loads(words)
    except ValueError:
        return otherwise
