"""uvicorn connections with limits on their number, on the time for headers, and on unread responses."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from keelbolt.server.hosts import is_loopback
from keelbolt.server.settings import ServerSettings

logger = logging.getLogger("keelbolt.server")

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

LINGER_SECONDS = 5.0  # time to read the rest of a refused body; closing at once would lose the response
LOG_SECONDS = 10.0  # refused connections are logged at most this often
RESERVED_FILES = 256  # file descriptors for the storage, webhooks and logs


class ConnectionCounter:
    """Counts the connections of this process, in total and per address.

    Loopback addresses have no limit of their own: a proxy on this machine uses one address for all its clients. With
    ``trust_proxy``, the same holds for every address.
    """

    def __init__(self, total: int, each: int, *, trust_proxy: bool = False) -> None:
        self._total = total
        self._each = 0 if trust_proxy else each
        self._open: Counter[str] = Counter()
        self._count = self._refused = 0
        self._logged = -LOG_SECONDS

    def enter(self, address: str) -> bool:
        """Count one more connection; return False if a limit is reached."""
        full = self._total and self._count >= self._total
        if full or (self._each and self._open[address] >= self._each and not is_loopback(address)):
            self._log(address, full=bool(full))
            return False
        self._count += 1
        self._open[address] += 1
        return True

    def leave(self, address: str) -> None:
        self._count -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def _log(self, address: str, *, full: bool) -> None:
        self._refused += 1
        if time.monotonic() - self._logged < LOG_SECONDS:
            return
        self._logged = time.monotonic()
        limit = f"{self._total} (connections)" if full else f"{self._each} per address (connections_each)"
        logger.warning("refused %d connections, the last from %s: the limit is %s", self._refused, address, limit)
        self._refused = 0


def most_connections(wanted: int) -> int:
    """Raise the limit of open files as far as needed, and return how many connections this process can have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES if wanted else hard
    if needed > soft or needed == resource.RLIM_INFINITY:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = wanted if soft == resource.RLIM_INFINITY else max(1, soft - RESERVED_FILES)
    if most < wanted:
        logger.warning(
            "limited to %d connections, not %d: this process may open %d files (ulimit -n)", most, wanted, soft
        )
    return min(most, wanted) if wanted else most


class HttpConnection(HttpToolsProtocol):
    """One connection. uvicorn's timeout applies between requests, the application's within a body."""

    header_bytes = 65_536
    header_seconds = 15.0
    write_seconds = 30.0
    opened = ConnectionCounter(0, 0)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._in_headers = self._in_body = False
        self._header_bytes = 0
        self._address: str | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if not self.opened.enter(address):
            self._refuse(_TOO_MANY)
            return
        self._address = address
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over()
        self._sent()
        if self._address is not None:
            self.opened.leave(self._address)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(self.write_seconds, self._check_progress)

    def resume_writing(self) -> None:
        self._sent()
        super().resume_writing()

    def _check_progress(self) -> None:
        """Drop the connection if the client has read nothing since the last check."""
        left = self.transport.get_write_buffer_size()
        if left < self._unsent:
            self._unsent = left
            self._stalled = self.loop.call_later(self.write_seconds, self._check_progress)
            return
        self._stalled = None
        logger.info("dropped a connection from %s: the client read nothing for %g s", self._address, self.write_seconds)
        self.transport.abort()

    def _sent(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

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
        if self._in_body and not self.pipeline:  # refused before the whole body arrived
            self._deadline = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._too_slow)

    def _over(self) -> None:
        """Cancel the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not self._idle:
            self._wait_for_headers()  # the response to an earlier request is still being sent
        elif not self.transport.is_closing():
            self._refuse(_TOO_SLOW if self._in_headers else b"")

    def _refuse(self, answer: bytes) -> None:
        if self._idle:  # otherwise it would be written inside another response
            self.transport.write(answer)
        self.transport.close()


def connections(settings: ServerSettings) -> type[HttpConnection]:
    """Return a connection class with the limits of these settings."""
    total = most_connections(settings.connections)
    limits = {
        "header_bytes": settings.header_bytes,
        "header_seconds": settings.header_seconds,
        "write_seconds": settings.write_seconds,
        "opened": ConnectionCounter(total, settings.connections_each, trust_proxy=settings.trust_proxy),
    }
    return type("Connection", (HttpConnection,), limits)
