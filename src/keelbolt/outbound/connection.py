"""An HTTP/1.1 connection to a checked address, with a certificate that is valid for the host.

`OutboundConnection.post` covers the needs of webhooks: it sends a POST and returns the status. The rest of the response
is read up to a limit and discarded. `keelbolt.outbound.download` reads whole responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl

import httptools

from keelbolt.outbound.addresses import RequestTarget, Resolver, resolve

MAX_ANSWER = 64 * 1024  # bytes, head and body together
READ_BYTES = 16 * 1024
REST_SECONDS = 1.0  # only the status is needed; do not wait long for the rest


class BadResponse(Exception):
    """The receiver's response is not HTTP."""


class ClosedEarly(Exception):
    """The receiver closed a reused connection before it responded; the request can be sent over a new one."""


@functools.cache
def public_authorities() -> ssl.SSLContext:
    """Return TLS settings that trust certificates of public authorities."""
    return ssl.create_default_context()


async def connect(
    target: RequestTarget,
    *,
    loopback: bool = False,
    resolver: Resolver | None = None,
    tls: ssl.SSLContext | None = None,
) -> OutboundConnection:
    """Resolve the host, check every address, and connect to the first reachable one.

    ``tls`` defines the trusted certificates; None: those of public authorities.
    """
    addresses = await resolve(target, loopback=loopback, resolver=resolver)
    context = (tls or public_authorities()) if target.scheme == "https" else None
    for address in addresses[:-1]:
        try:
            return await OutboundConnection.open(address, target.port, context, target.certified)
        except ssl.SSLError:
            raise
        except OSError:  # the next one may be reachable
            continue
    return await OutboundConnection.open(addresses[-1], target.port, context, target.certified)


class OutboundConnection:
    """A connection to one host. ``fresh``: nothing was sent over it yet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.fresh = True
        self.usable = True

    @classmethod
    async def open(cls, address: str, port: int, tls: ssl.SSLContext | None, name: str) -> OutboundConnection:
        """Open a connection. ``name`` is the host that the certificate must be valid for."""
        if tls is None:
            return cls(*await asyncio.open_connection(address, port, limit=READ_BYTES))
        return cls(*await asyncio.open_connection(address, port, ssl=tls, server_hostname=name, limit=READ_BYTES))

    @property
    def idle(self) -> bool:
        """Whether the connection can be reused: it is open and has no unread data."""
        return self.usable and not self._reader.at_eof() and not self._writer.is_closing() and not self._leftover

    @property
    def _leftover(self) -> bool:
        return bool(getattr(self._reader, "_buffer", b""))

    def close(self) -> None:
        self.usable = False
        self._writer.transport.abort()  # no graceful close: it would block on a receiver that does not read

    async def send(self, data: bytes) -> None:
        self.fresh = self.usable = False
        self._writer.write(data)
        await self._writer.drain()

    async def read(self) -> bytes:
        """Return the next bytes of the response; empty at its end."""
        return await self._reader.read(READ_BYTES)

    async def post(self, head: bytes, body: bytes) -> int:
        """Send a POST and return the status. After an oversized response, the connection is not usable any more."""
        kept, self.fresh = not self.fresh, False
        self.usable = False
        answer = _Answer()
        answer.listen(parser := httptools.HttpResponseParser(answer))
        size = 0
        try:
            self._writer.write(head + body)
            await self._writer.drain()
            while not answer.status and size < MAX_ANSWER:
                data = await self._reader.read(READ_BYTES)
                if not data:
                    break
                size += len(data)
                answer.feed(parser, data)
            if answer.status and not answer.complete:
                await self._rest(answer, parser, MAX_ANSWER - size)
        except ConnectionError:
            if kept and not answer.status:
                raise ClosedEarly from None
            if not answer.status:
                raise
        finally:
            answer.listen(None)
        if not answer.status:
            if kept and size == 0:
                raise ClosedEarly
            raise BadResponse(
                "the connection was closed without a response" if size == 0 else "the response is not HTTP"
            )
        self.usable = answer.complete and answer.keep
        return answer.status

    async def _rest(self, answer: _Answer, parser: httptools.HttpResponseParser, most: int) -> None:
        """Read the rest of the response, so that the connection can be reused; not if it is too large or too slow."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while not answer.complete and most > 0 and (data := await self._reader.read(READ_BYTES)):
                    most -= len(data)
                    answer.feed(parser, data)


class _Answer:
    """Callbacks of the parser. A 1xx response is not final."""

    def __init__(self) -> None:
        self.status = 0
        self.complete = False
        self.keep = False
        self._parser: httptools.HttpResponseParser | None = None

    def listen(self, parser: httptools.HttpResponseParser | None) -> None:
        self._parser = parser

    def feed(self, parser: httptools.HttpResponseParser, data: bytes) -> None:
        """Parse data. What follows a status can't change it, but the connection is not reused if it is not HTTP."""
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return
        except httptools.HttpParserError as error:
            if not self.status:
                raise BadResponse("the response is not HTTP") from error
            self.complete, self.keep = True, False

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        if self.complete:  # a second response, which no request asked for
            self.keep = False
            return
        status = self._parser.get_status_code()
        self.status = status if status >= 200 else 0
        self.keep = self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        self.complete = self.status > 0
