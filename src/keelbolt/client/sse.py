"""Parses server-sent events from bytes in chunks of any size.

An event is complete with the empty line after it. A partial event of a broken connection is dropped; the agent sends it
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from keelbolt.errors import A2AResponseError

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """``data``: the data lines joined by line feeds. ``id``: the last event id at its end."""

    data: bytes
    id: str | None = None
    name: str = "message"


class Parser:
    """Incremental parser. ``retry_seconds`` is the reconnection delay that the server requests."""

    def __init__(self, limit: int) -> None:
        self.retry_seconds: float | None = None
        self._limit = limit
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None
        self._name = ""
        self._begun = False

    def feed(self, block: bytes) -> Iterator[ServerEvent]:
        """Yield the events that this block completes. Raise A2AResponseError if one is too large."""
        block = self._rest + block if self._rest else block
        if not self._begun and len(block) >= len(_BOM):
            block, self._begun = block.removeprefix(_BOM), True
        if b"\r" in block:
            # A trailing CR may be the first half of CR LF; keep it for the next block.
            held = block.endswith(b"\r")
            body = block[:-1] if held else block
            block = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + (b"\r" if held else b"")
        *lines, self._rest = block.split(b"\n")
        if len(self._rest) + self._size > self._limit:
            raise A2AResponseError(f"an event of the stream has more than {self._limit} bytes")
        for line in lines:
            if line:
                self._line(line)
            elif self._data:
                event = ServerEvent(b"\n".join(self._data), self._id, self._name or "message")
                self._data, self._size, self._name = [], 0, ""
                yield event
            else:
                self._name = ""

    def _line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            if self._size > self._limit:
                raise A2AResponseError(f"an event of the stream has more than {self._limit} bytes")
        elif name == b"id":
            if b"\0" not in value and len(value) <= 1024:
                self._id = value.decode("utf-8", "replace")
        elif name == b"event":
            self._name = value[:100].decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 8:
            self.retry_seconds = int(value) / 1000
