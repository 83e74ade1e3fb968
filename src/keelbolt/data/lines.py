"""The lines of an export: JSON objects, each with a checksum over itself and all lines before it.

A line that was changed, removed, repeated or moved breaks the chain of checksums, and the reader reports its number.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any, BinaryIO
from zlib import crc32

from keelbolt.errors import BadExport

FORMAT = 1
MAX_LINE_BYTES = 64 * 1024 * 1024
ESCAPE_BYTES = 6  # of an escaped control character
ESCAPED_BYTES = MAX_LINE_BYTES // 2  # of a text in a line
_CHECKSUM = len(b',"crc":"00000000"}')

Line = dict[str, Any]


def body(data: bytes) -> Line:
    """Return the members that encode these bytes: ``text`` if they are UTF-8, otherwise ``data`` in Base64.

    A large text whose escapes could exceed the limit of a line is encoded in Base64 too.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or (len(data) * ESCAPE_BYTES > ESCAPED_BYTES and len(json.dumps(text)) > ESCAPED_BYTES):
        return {"data": base64.b64encode(data).decode()}
    return {"text": text}


def bytes_of(line: Line) -> bytes:
    """Return the bytes that `body` encoded."""
    if "text" in line:
        text: str = line["text"]
        return text.encode()
    return base64.b64decode(line["data"], validate=True)


def encoded(line: Line) -> bytes:
    """Return a line without its checksum and line feed."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode()


class LineWriter:
    """Writes lines with their checksums and counts them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._crc = 0
        self.bytes = 0

    def write(self, line: bytes) -> None:
        self._crc = crc32(line, self._crc)
        self.bytes += self._file.write(b'%b,"crc":"%08x"}\n' % (line[:-1], self._crc))


class LineReader:
    """Reads and checks lines. ``number`` is the number of the last line read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._crc = 0
        self.number = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[Line]:
        while line := self._file.readline(MAX_LINE_BYTES):
            self.number += 1
            self.bytes += len(line)
            yield self._checked(line)

    def _checked(self, line: bytes) -> Line:
        if not line.endswith(b"}\n"):
            raise self.refusal("is incomplete: the file is truncated")
        text = line[:-1]
        content = text[:-_CHECKSUM] + b"}"
        self._crc = crc32(content, self._crc)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if self.number == 1:
            version = found.get("format") if isinstance(found, dict) and found.get("keelbolt") == "export" else None
            if type(version) is not int:
                raise self.refusal("is not the first line of an export")
            if version > FORMAT:
                raise BadExport(f"this export has format {version}; this version reads {FORMAT}: use a newer one")
        if not isinstance(found, dict) or found.get("crc") != f"{self._crc:08x}":
            raise self.refusal("is damaged, or lines before it are missing")
        return found

    def refusal(self, what: str) -> BadExport:
        """Return an error that names the last line read."""
        return BadExport(f"line {self.number} {what}")


def check(file: BinaryIO) -> None:
    """Read the whole file. Raise BadExport, with the line number, unless it is a complete and undamaged export."""
    reader = LineReader(file)
    last: Line = {}
    for line in reader:
        if "chunk" in line:
            try:
                base64.b64decode(line["chunk"], validate=True)
            except (binascii.Error, ValueError, TypeError):
                raise reader.refusal("is not part of a blob") from None
        last = line
    if not reader.number:
        raise BadExport("the file is empty")
    if "end" not in last:
        raise reader.refusal("is the last line, but not the end of the export: the file is truncated")
