"""The order-preserving encoding of all engines: encoded tuples compare as bytes in the order of their values.

Values are None < False < True < int < float < str; a field has one declared type, so only None mixes with it. An index
entry is the encoded (partition, equal fields…, order field, key); a query is a range of such bytes. A page cursor is
the last index entry that was returned, bound to its query and to the time of the first page.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from keelbolt.errors import BadCursor
from keelbolt.kernel.records import Scalar

LONG_BYTES = 200  # strings are ordered by this many bytes; longer ones also differ by their hash
END = b"\xfd"  # greater than every tag, less than the byte after a NUL inside a string: prefix + END ends a range

_NONE, _FALSE, _TRUE = b"\x01", b"\x02", b"\x03"
_INT = struct.Struct(">cQ")
_SIGN = 1 << 63
_MASK = (1 << 64) - 1


def encode(values: Iterable[Scalar]) -> bytes:
    return b"".join(map(encode_one, values))


def encode_one(value: Scalar) -> bytes:
    if type(value) is str:
        return encode_text(value)
    if type(value) is int:
        return _INT.pack(b"\x10", value + _SIGN)
    if value is None:
        return _NONE
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    if isinstance(value, str):  # an instance of a subclass
        return encode_text(value)
    if isinstance(value, int):
        return _INT.pack(b"\x10", value + _SIGN)
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    return _INT.pack(b"\x11", bits ^ _SIGN if bits < _SIGN else bits ^ _MASK)


@lru_cache(maxsize=1024)  # the partition, key and fields of one record appear in many entries
def encode_text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > LONG_BYTES:
        return b"\x20" + raw[:LONG_BYTES].replace(b"\0", b"\0\xff") + b"\0\xfe" + hashlib.sha256(raw).digest()
    if b"\0" in raw:
        raw = raw.replace(b"\0", b"\0\xff")
    return b"\x20" + raw + b"\0"


# --------------------------------------------------------------------------------------------------------- page cursors


_PRINT_BYTES = 8
_TIME_BYTES = 8


@dataclass(frozen=True, slots=True)
class PageCursor:
    """Where a page ended, and when the first page of the query was read (microseconds since 1970)."""

    last: bytes
    started_at: int


def write_cursor(cursor: PageCursor, *query: str | int | float | bool | None) -> str:
    place = cursor.started_at.to_bytes(_TIME_BYTES) + cursor.last
    return base64.urlsafe_b64encode(_fingerprint(query, place) + place).rstrip(b"=").decode()


def read_cursor(text: str, *query: str | int | float | bool | None) -> PageCursor:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise BadCursor from None
    fingerprint, place = raw[:_PRINT_BYTES], raw[_PRINT_BYTES:]
    if fingerprint != _fingerprint(query, place):
        raise BadCursor
    return PageCursor(place[_TIME_BYTES:], int.from_bytes(place[:_TIME_BYTES]))


def _fingerprint(query: tuple[str | int | float | bool | None, ...], place: bytes) -> bytes:
    return hashlib.sha256(encode(query) + place).digest()[:_PRINT_BYTES]
