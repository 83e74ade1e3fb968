"""Checksums of the stored data: SQLite itself does not detect a flipped byte in a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from keelbolt.errors import InvalidRequest
from keelbolt.kernel.ledger import work_state


def body_is_sound(body: object, crc: int) -> bool:
    """Return whether the body matches its checksum. A damaged body may not even be bytes."""
    return isinstance(body, bytes) and crc32(body) == crc


def entry_is_sound(stream: int, seq: int, at: int, kind: str, data: object, crc: int) -> bool:
    return isinstance(data, bytes) and entry_crc(stream, seq, at, kind, data) == crc


# Errors raised for a row that no longer has its original structure.
UNREADABLE = (TypeError, ValueError, LookupError, InvalidRequest)


def head_crc(partition: str, collection: str, key: str, version: int, fields: str, expires_at: int | None) -> int:
    return crc32(f"{partition}\0{collection}\0{key}\0{version}\0{fields}\0{expires_at}".encode("utf-8", "replace"))


def entry_crc(stream: int, seq: int, at: int, kind: str, data: bytes) -> int:
    return crc32(data, crc32(f"{stream}\0{seq}\0{at}\0{kind}".encode()))


def work_crc(*values: str | int | None) -> int:
    return crc32("\0".join(map(str, values)).encode("utf-8", "replace"))


def work_is_sound(row: Sequence[Any]) -> bool:
    """Check a complete row of the work table. The checksum does not cover whether a waiting item is ready."""
    partition, queue, key, state, *values, crc = row
    return bool(work_crc(partition, queue, key, work_state(state), *values) == crc)
