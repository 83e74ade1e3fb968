"""Connections of uvicorn that end when a client dawdles: uvicorn itself waits for headers as long as they take."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from keelbolt.server.settings import ServerSettings

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

LINGER_SECONDS = 5.0  # a client still sends what was refused: hang up at once, and it would not see the answer


class Connection(HttpToolsProtocol):
    """One connection. Between two requests, uvicorn's own timeout holds; within the body, the application's."""

    header_bytes = 65_536
    header_seconds = 15.0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._in_headers = self._in_body = False
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_body or self.transport.is_closing():
            return
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > self.header_bytes:
                self._refuse(_TOO_LARGE)
                return
        if self._deadline is None and (self._in_headers or self._idle):  # these bytes ended uvicorn's own timeout
            self._wait_for_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_headers, self._in_body = False, True
        self._over()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body = False
        self._over()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and not self.pipeline:  # refused before all of its body was here
            self._deadline = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._too_slow)

    def _over(self) -> None:
        """Nothing is waited for any more."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not self._idle:
            self._wait_for_headers()  # the answer to an earlier request comes first
        elif not self.transport.is_closing():
            self._refuse(_TOO_SLOW if self._in_headers else b"")

    def _refuse(self, answer: bytes) -> None:
        if self._idle:  # else it would stand within another answer
            self.transport.write(answer)
        self.transport.close()


def connections(settings: ServerSettings) -> type[Connection]:
    """Connections with the limits of these settings."""
    limits = {"header_bytes": settings.header_bytes, "header_seconds": settings.header_seconds}
    return type("Connection", (Connection,), limits)
