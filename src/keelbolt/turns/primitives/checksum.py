"""The checksum that identifies equal tool calls, in every program that follows the same rule.

It is the SHA-256 of the text that JavaScript would write: members sorted by their UTF-16 code units, no spaces,
numbers and strings as in `JSON.stringify`. An integer beyond 2**53 is rounded as in JavaScript, and NaN is null.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from keelbolt.protocol.canonical import ecmascript_number

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
