"""Parses replies from a buffer.

The driver's own parser awaits every line of a reply, and a commit's reply has about ten lines: that cost a fifth of the
CPU time of a request.
"""

from __future__ import annotations

from typing import Any

from redis._parsers import _AsyncRESP2Parser
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import InvalidResponse

READ_BYTES = 1 << 18

_ERROR, _STATUS, _NUMBER, _BULK, _ARRAY = b"-+:$*"


class _Short(Exception):
    """The reply is incomplete: at least ``missing`` more bytes are needed."""

    def __init__(self, missing: int) -> None:
        self.missing = missing


class ReplyParser(_AsyncRESP2Parser):
    """A parser for the driver's connections; replies are bytes, integers, None and lists of these."""

    async def read_response(self, disable_decoding: bool = False) -> Any:  # noqa: ARG002, FBT001, FBT002 - the driver's
        if not self._connected:
            raise LostConnection("the connection is closed")
        while True:
            try:
                reply, self._pos = self._parsed(self._buffer, self._pos)
            except _Short as short:
                await self._read_more(short.missing)
                continue
            if self._pos == len(self._buffer):
                self._buffer, self._pos = b"", 0
            if isinstance(reply, LostConnection):
                raise reply
            return reply

    async def _read_more(self, missing: int) -> None:
        stream = self._stream
        assert stream is not None
        data = await stream.read(max(missing, READ_BYTES))
        if not data:
            raise LostConnection("the server closed the connection")
        parts = [self._buffer[self._pos :], data]
        missing -= len(data)
        while missing > 0:  # a large value: joined once, when it is complete
            data = await stream.read(missing)
            if not data:
                raise LostConnection("the server closed the connection")
            parts.append(data)
            missing -= len(data)
        self._buffer, self._pos = b"".join(parts), 0

    def _parsed(self, buffer: bytes, at: int) -> tuple[Any, int]:
        """Return the reply at this position, and the position of the next one."""
        end = buffer.find(b"\r\n", at)
        if end < 0:
            raise _Short(0)
        kind = buffer[at]
        if kind == _NUMBER:
            return int(buffer[at + 1 : end]), end + 2
        if kind == _BULK:
            size = int(buffer[at + 1 : end])
            if size < 0:
                return None, end + 2
            stop = end + 2 + size
            if stop + 2 > len(buffer):
                raise _Short(stop + 2 - len(buffer))
            return buffer[end + 2 : stop], stop + 2
        if kind == _ARRAY:
            count = int(buffer[at + 1 : end])
            at = end + 2
            if count < 0:
                return None, at
            items = []
            for _ in range(count):
                item, at = self._parsed(buffer, at)
                items.append(item)
            return items, at
        if kind == _STATUS:
            return buffer[at + 1 : end], end + 2
        if kind == _ERROR:
            return (
                self.parse_error(  # type: ignore[no-untyped-call]
                    buffer[at + 1 : end].decode("utf-8", "replace")
                ),
                end + 2,
            )
        raise InvalidResponse(f"an unknown kind of reply: {buffer[at : at + 20]!r}")
