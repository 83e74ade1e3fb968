"""Fields as tokens: an order-preserving encoding, which Lua turns into index entries and Python into values."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from keelbolt.kernel.keys import LONG_BYTES, encode_one, encode_text
from keelbolt.kernel.records import NO_FIELDS, Fields, Scalar

_SIGN = 1 << 63
_MASK = (1 << 64) - 1


def token_of(value: Scalar) -> bytes:
    """Encode a value. A long string, which the encoding hashes, also carries its text, and -0.0 its sign."""
    if isinstance(value, str):
        encoded = encode_text(value)
        if len(encoded) <= LONG_BYTES:  # the usual case: the text is not longer than its encoding
            return encoded
        raw = value.encode("utf-8", "surrogatepass")
        return b"L%04d%b%b" % (len(encoded), encoded, raw) if len(raw) > LONG_BYTES else encoded
    if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:
        return b"Z" + encode_one(value)
    return encode_one(value)


def value_of(token: bytes) -> Scalar:
    match token[:1]:
        case b" ":
            return token[1:-1].replace(b"\0\xff", b"\0").decode("utf-8", "surrogatepass")
        case b"L":
            return token[5 + int(token[1:5]) :].decode("utf-8", "surrogatepass")
        case b"\x10":
            return int.from_bytes(token[1:9]) - _SIGN
        case b"\x11":
            bits = int.from_bytes(token[1:9])
            real: float = struct.unpack(">d", (bits ^ _SIGN if bits & _SIGN else bits ^ _MASK).to_bytes(8))[0]
            return real
        case b"Z":
            return -0.0
        case b"\x02":
            return False
        case b"\x03":
            return True
        case _:
            return None


def pack_fields(fields: Fields) -> bytes:
    """Encode fields as name=length:token in their own order, which a copy preserves."""
    if not fields:
        return b""
    parts = []
    for name, given in fields.items():
        packed = token_of(given)
        parts.append(b"%b=%d:%b" % (name.encode(), len(packed), packed))
    return b"".join(parts)


def unpack_fields(text: bytes) -> Fields:
    if not text:
        return NO_FIELDS
    fields: dict[str, Scalar] = {}
    at = 0
    while at < len(text):
        equals = text.index(b"=", at)
        colon = text.index(b":", equals)
        end = colon + 1 + int(text[equals + 1 : colon])
        fields[text[at:equals].decode()] = value_of(text[colon + 1 : end])
        at = end
    return fields


def field_pieces(values: Mapping[str, Scalar]) -> list[bytes]:
    """Return names and tokens alternately; an empty token removes a field."""
    return [
        part for name, given in values.items() for part in (name.encode(), b"" if given is None else token_of(given))
    ]
