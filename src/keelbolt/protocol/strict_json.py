"""Strict JSON for requests: rejects input that two parsers could interpret differently.

Besides invalid syntax it rejects duplicate keys, NaN and the infinities (1e999 too), lone surrogates, invalid UTF-8, a
byte order mark, and more bytes, values or levels than allowed. Integers of any size are exact. Values are counted
before parsing, because objects in memory can take fifty times the space of their text.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from keelbolt.errors import ParseError, RequestTooLargeError
from keelbolt.protocol.types import Json
from keelbolt.protocol.validation import DEFAULT, Limits


class _Refused(ValueError):
    """Carries our own message through the decoder."""


def read(body: bytes, *, limits: Limits = DEFAULT) -> Json:
    """Return the value of a JSON text. Raise only ParseError or RequestTooLargeError."""
    if len(body) > limits.body_bytes:
        raise RequestTooLargeError(f"the request has {len(body)} bytes; the limit is {limits.body_bytes}")
    _check_values(body, limits.values)
    try:
        value = _DECODER.decode(body.decode("utf-8"))  # not assigned: the text may be four times the body's size
    except UnicodeDecodeError:
        raise ParseError("the request is not UTF-8") from None
    except RecursionError:
        raise _too_deep(limits) from None
    except json.JSONDecodeError as error:
        raise ParseError(f"the request is not JSON: {error.msg} at character {error.pos}") from None
    except _Refused as error:
        raise ParseError(f"the request is not JSON: {error}") from None
    except ValueError:  # int() rejects thousands of digits
        raise ParseError("the request is not JSON: a number has too many digits") from None
    # With fewer brackets than allowed levels, no value nests too deep; only other bodies need the walk.
    if body.count(b"[") + body.count(b"{") > limits.depth and _deeper(value, limits.depth):
        raise _too_deep(limits)
    if (b"\\ud" in body or b"\\uD" in body) and not _PAIRED.fullmatch(body):
        raise ParseError("the request is not JSON: a string contains half of a surrogate pair")
    return value


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def _check_values(body: bytes, most: int) -> None:
    """Raise RequestTooLargeError if the text contains more than ``most`` values.

    Every value but the first follows a bracket or a comma. Brackets and commas inside strings are subtracted only if
    the total is too high. The loop ends as soon as the limit is reached, so that its cost is bounded, too.
    """
    if _openings(body, 0, len(body)) < most:
        return
    count = at = 0
    for string in _STRING.finditer(body):
        count += _openings(body, at, string.start())
        at = string.end()
        if count >= most:
            break
    if count + _openings(body, at, len(body)) >= most:
        raise RequestTooLargeError(f"the request has more than {most} JSON values")


def _openings(body: bytes, start: int, end: int) -> int:
    return body.count(b",", start, end) + body.count(b"[", start, end) + body.count(b"{", start, end)


def _too_deep(limits: Limits) -> RequestTooLargeError:
    return RequestTooLargeError(f"the request nests deeper than {limits.depth} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Refused("an object has the same key twice")
    return found


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Refused("a number is out of range")
    return value


def _constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


def _deeper(value: Json, depth: int) -> bool:
    """Return whether a value nests deeper; iterative, so that the walk can't exhaust the stack."""
    level = [value]
    for _ in range(depth):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                below += item.values()
            elif type(item) is list:
                below += item
        level = [item for item in below if type(item) in {dict, list}]
        if not level:
            return False
    return True


# Matches a JSON text in which every escaped surrogate is half of a pair.
_PAIRED = re.compile(
    rb"(?:[^\\]++|\\(?!u[dD][89a-fA-F]).|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+", re.DOTALL
)
