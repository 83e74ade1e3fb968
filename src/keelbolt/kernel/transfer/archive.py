"""The portable backup: one file with the rows of a whole store, written and read as a stream.

    magic · frame · frame · …      frame = tag (4 bytes) · length (4) · checksum (4) · payload

Each checksum continues the previous one, so that a lost, changed or moved frame is detected. The frames are HEAD (JSON:
id, engine, time), ROWS (a page of one table, compressed) and DONE (JSON: counts and hashes); a file without DONE is
incomplete. A page is a JSON array of rows, with the length of the bytes in place of the bytes, followed by the bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from keelbolt.errors import BadBackup
from keelbolt.kernel.transfer.rows import ROW_TYPES, TABLES, Row, Table

MAGIC = b"KEELBOLT BACKUP 1\n"
LEVEL = 1  # the fastest compression, because compression is slower than the disk

_FRAME = struct.Struct(">4sII")
_LENGTH = struct.Struct(">BI")
_BYTES: dict[Table, int] = {"record": 6, "entry": 6, "chunk": 3}  # the column that holds bytes
MAX_FRAME = 1 << 30


@dataclass(frozen=True, slots=True)
class ArchiveFrame:
    """``next`` is the resume position: the offset after this frame, and the checksum up to there."""

    tag: bytes
    payload: bytes
    next: tuple[int, int]


class ArchiveWriter:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._crc = 0
        file.write(MAGIC)

    def write(self, tag: bytes, payload: bytes) -> None:
        self._crc = zlib.crc32(payload, zlib.crc32(tag, self._crc))
        self._file.write(_FRAME.pack(tag, len(payload), self._crc))
        self._file.write(payload)

    def write_json(self, tag: bytes, value: dict[str, Any]) -> None:
        self.write(tag, json.dumps(value).encode())

    def write_rows(self, table: Table, rows: list[Row]) -> None:
        self.write(b"ROWS", zlib.compress(pack(table, rows), LEVEL))


def frames(file: BinaryIO, start: tuple[int, int] | None = None) -> Iterator[ArchiveFrame]:
    """Return the frames from this position; each checksum is verified."""
    offset, crc = start or (len(MAGIC), 0)
    file.seek(offset)
    while head := file.read(_FRAME.size):
        if len(head) < _FRAME.size:
            raise BadBackup("this backup is cut off; use another one")
        tag, length, expected = _FRAME.unpack(head)
        if length > MAX_FRAME:
            raise BadBackup
        payload = file.read(length)
        if len(payload) < length:
            raise BadBackup("this backup is cut off; use another one")
        crc = zlib.crc32(payload, zlib.crc32(tag, crc))
        if crc != expected:
            raise BadBackup
        offset += _FRAME.size + length
        yield ArchiveFrame(tag, payload, (offset, crc))


def pack(table: Table, rows: list[Row]) -> bytes:
    place = _BYTES.get(table)
    if place is None:
        text = json.dumps(rows).encode()
        return _LENGTH.pack(TABLES.index(table), len(text)) + text
    lines: list[list[Any]] = [list(row) for row in rows]
    values = [line[place] for line in lines]
    for line, value in zip(lines, values, strict=True):
        line[place] = len(value)
    text = json.dumps(lines).encode()
    return b"".join([_LENGTH.pack(TABLES.index(table), len(text)), text, *values])


def table_of(payload: bytes) -> Table:
    """Return the table of a page without decoding the page."""
    return TABLES[zlib.decompressobj().decompress(payload, 1)[0]]


def unpack(payload: bytes) -> tuple[Table, list[Row]]:
    data = zlib.decompress(payload)
    number, length = _LENGTH.unpack_from(data)
    table = TABLES[number]
    start = _LENGTH.size + length
    lines = json.loads(data[_LENGTH.size : start])
    place = _BYTES.get(table)
    if place is not None:
        for line in lines:
            end = start + line[place]
            line[place] = data[start:end]
            start = end
    kind = ROW_TYPES[table]
    return table, [kind(*line) for line in lines]
