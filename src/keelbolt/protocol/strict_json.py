"""JSON as it is accepted from outside: what two readers could understand differently is refused.

Refused besides bad syntax: a key twice in one object, NaN and the infinities (1e999 too), lone surrogates, bad UTF-8,
a byte order mark, more levels or bytes than allowed. Integers of any size come back exactly.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from keelbolt.errors import ParseError, RequestTooLargeError
from keelbolt.protocol.limits import DEFAULT, Limits
from keelbolt.protocol.types import Json


class _Refused(ValueError):
    """Carries our own words through the decoder."""


def read(body: bytes, *, limits: Limits = DEFAULT) -> Json:
    """The value of a JSON text. Raises ParseError or RequestTooLargeError and nothing else."""
    if len(body) > limits.body_bytes:
        raise RequestTooLargeError(f"the request has {len(body)} bytes; {limits.body_bytes} are the most")
    try:
        text = body.decode("utf-8")
        value = _DECODER.decode(text)
    except UnicodeDecodeError:
        raise ParseError("the request is not UTF-8") from None
    except RecursionError:
        raise _too_deep(limits) from None
    except json.JSONDecodeError as error:
        raise ParseError(f"the request is not JSON: {error.msg} at character {error.pos}") from None
    except _Refused as error:
        raise ParseError(f"the request is not JSON: {error}") from None
    except ValueError:  # int() refuses thousands of digits
        raise ParseError("the request is not JSON: a number has too many digits") from None
    # Fewer brackets than levels allowed can't nest too deep; only the others are worth a walk.
    if body.count(b"[") + body.count(b"{") > limits.depth and _deeper(value, limits.depth):
        raise _too_deep(limits)
    if b"\\ud" in body or b"\\uD" in body:
        _refuse_surrogates(value)
    return value


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
    raise _Refused(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


def _deeper(value: Json, depth: int) -> bool:
    """Whether a value nests deeper; level by level, so that the walk itself needs no stack."""
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


def _refuse_surrogates(value: Json) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ParseError("the request is not JSON: a string holds half of a surrogate pair") from None
