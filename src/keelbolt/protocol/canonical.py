"""Canonical JSON (RFC 8785, JCS): one text per value, so that every verifier computes the same signature input.

Members are sorted by their UTF-16 code units, strings are escaped as little as JSON allows, and numbers are formatted
as in ECMAScript. An integer that ECMAScript would change (2**53 + 1, say) raises ValueError.
"""

from __future__ import annotations

import json
import math

from keelbolt.protocol.types import Json

_EXACT = 2**53
_MOST = 10**21  # from here on, ECMAScript uses exponents


def canonical_json(value: Json) -> bytes:
    """Return the canonical text of a JSON value. Raise ValueError if JSON or ECMAScript can't represent it exactly."""
    return _text(value).encode("utf-8")


def _text(value: Json) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        if abs(value) > _EXACT and (abs(value) >= _MOST or ecmascript_number(float(value)) != str(value)):
            raise ValueError("this integer has no canonical form: ECMAScript would change it")
        return str(int(value))
    if isinstance(value, float):
        return ecmascript_number(value)
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_text(str(name))}:{_text(item)}" for name, item in members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    raise ValueError(f"{type(value).__name__} is not JSON")


def ecmascript_number(value: float) -> str:
    """Format like Number.prototype.toString. Python finds the same shortest digits, but formats them differently."""
    if not math.isfinite(value):
        raise ValueError("NaN and the infinities are not JSON")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))  # digits before the decimal point
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"
