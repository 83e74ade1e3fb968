"""Page cursors: the last index entry that was returned, bound to its query and to the time of the first page."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from keelbolt.errors import BadCursor
from keelbolt.kernel.keys import encode

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
