"""Tool calls: the tool, its arguments and its results."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from keelbolt.errors import InvalidInitialToolCallValue
from keelbolt.protocol.signatures import ecmascript_number
from keelbolt.turns.primitives.content import Media, SpooledArtifact
from keelbolt.turns.primitives.values import (
    Moment,
    Tokenizable,
    Wrong,
    flag,
    keep,
    opaque,
    optional_text,
    plain,
    refusing,
    replay,
    text,
    time,
    times,
    words,
)

Results: TypeAlias = "Tokenizable | SpooledArtifact | tuple[SpooledArtifact, ...] | Media | tuple[Media, ...]"
AnyResults: TypeAlias = "str | Tokenizable | SpooledArtifact | Sequence[SpooledArtifact] | Media | Sequence[Media]"


@refusing(InvalidInitialToolCallValue)
@dataclass(frozen=True, slots=True, eq=False, init=False)
class ToolCall:
    """One call of a tool. While it is pending, ``results`` and ``completed_at`` may be missing.

    ``checksum`` identifies equal calls; by default it is computed from the tool's name and the arguments. ``turn_id``
    is the turn that stored the call; storage sets it when the call is fetched.
    """

    id: str
    tool: str
    args: dict[str, Any]
    checksum: str
    is_complete: bool
    is_error: bool
    results: Results | None
    payload: Any
    replay_compatibility: str | None
    from_artifact_tool: bool
    inline: bool
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None
    turn_id: str | None

    def __init__(
        self,
        *,
        id: str,  # noqa: A002
        tool: str,
        args: Mapping[str, Any] | str,
        checksum: str | None = None,
        is_complete: bool = False,
        is_error: bool = False,
        results: AnyResults | None = None,
        payload: Any = None,
        replay_compatibility: str | None = None,
        from_artifact_tool: bool = False,
        inline: bool = False,
        created_at: Moment | None = None,
        updated_at: Moment | None = None,
        completed_at: Moment | None = None,
        turn_id: str | None = None,
    ) -> None:
        name, given, over = text("tool", tool), _args(args), flag("is_complete", is_complete)
        if over and results is None:
            raise Wrong("a complete call has results; pass is_complete=False while there are none")
        stamps = times(created_at, updated_at)
        ended = None if completed_at is None else time("completed_at", completed_at)
        if over and ended is None:
            ended = stamps["updated_at"]
        keep(
            self,
            id=text("id", id),
            tool=name,
            args=given,
            checksum=tool_call_checksum(name, given) if checksum is None else text("checksum", checksum),
            is_complete=over,
            is_error=flag("is_error", is_error),
            results=None if results is None else _results(results),
            payload=opaque(payload),
            replay_compatibility=replay(payload, replay_compatibility),
            from_artifact_tool=flag("from_artifact_tool", from_artifact_tool),
            inline=flag("inline", inline),
            completed_at=ended,
            turn_id=optional_text("turn_id", turn_id),
            **stamps,
        )

    def completed(self, results: AnyResults, *, at: Moment, is_error: bool = False) -> ToolCall:
        """Return the same call with its results, for `mutate_tool_call`."""
        try:
            ended, found = time("at", at), _results(results)
        except Wrong as wrong:
            raise InvalidInitialToolCallValue(f"ToolCall: {wrong}") from None
        return replace(self, is_complete=True, is_error=is_error, results=found, updated_at=ended, completed_at=ended)


def _args(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as wrong:
            raise Wrong(f"args is text that is not JSON: {wrong}") from None
    if not isinstance(value, Mapping):
        raise Wrong(f"args is a dict, or JSON text of an object, not {type(value).__name__}")
    kept: dict[str, Any] = plain("args", value if isinstance(value, dict) else dict(value))
    return kept


def _results(value: object) -> Results:
    if isinstance(value, (SpooledArtifact, Media)):
        return value
    if not isinstance(value, (list, tuple)):
        return words("results", value, empty=True)
    if not value:
        raise Wrong("results is an empty list; leave it out, or give at least one")
    if all(isinstance(item, SpooledArtifact) for item in value) or all(isinstance(item, Media) for item in value):
        return tuple(value)
    kinds = sorted({type(item).__name__ for item in value})
    raise Wrong(f"results is a list of SpooledArtifact or a list of Media, not of {' and '.join(kinds)}")


# ------------------------------------------------------------------------------------------------------------- checksum


_LONE = re.compile("[\ud800-\udfff]")


def tool_call_checksum(tool: str, args: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of the canonical ``{"args": …, "tool": …}``."""
    return hashlib.sha256(canonical({"args": dict(args), "tool": tool}).encode("utf-8")).hexdigest()


def canonical(value: object) -> str:
    """Return the canonical JSON text of this value. Raise ValueError if it is not JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _string(value)
        case int() | float():
            return _number(value)
        case dict():
            if not all(isinstance(name, str) for name in value):
                raise ValueError("keys of JSON are strings")
            members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be", "surrogatepass"))
            return "{" + ",".join(f"{_string(name)}:{canonical(item)}" for name, item in members) + "}"
        case list() | tuple():
            return "[" + ",".join(map(canonical, value)) + "]"
        case _:
            raise ValueError(f"{type(value).__name__} is not JSON")


def _string(value: str) -> str:
    if value.isascii():
        return json.dumps(value, ensure_ascii=False)
    # In UTF-16 a surrogate pair is one character; a lone surrogate is escaped, as JSON.stringify does.
    whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(whole, ensure_ascii=False))


def _number(value: float) -> str:
    try:
        real = float(value)
    except OverflowError:
        return "null"
    return ecmascript_number(real) if math.isfinite(real) else "null"
