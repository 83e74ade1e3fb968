"""Downloads a file from a URL that a client specified: public addresses only, with limits of size and time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urljoin

import httptools

from keelbolt.errors import DownloadFailed, InvalidValue
from keelbolt.outbound.addresses import RequestTarget, Resolver, check_url
from keelbolt.outbound.connection import OutboundConnection, connect

MAX_REDIRECTS = 3
MAX_HEAD_BYTES = 64 * 1024
_OK = 200
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadRules:
    """Limits for downloads. ``seconds`` limits a whole download, including the caller's processing time.

    ``loopback`` allows this machine, also over plain HTTP: for development. ``hosts`` are the only hosts allowed:
    names, addresses, or ``*.example.com`` for all names below that one; empty: all public ones. ``tls`` defines the
    trusted certificates, and ``resolver`` resolves names; None: those of the system.
    """

    max_bytes: int = 50 * 1024 * 1024
    seconds: float = 60.0
    loopback: bool = False
    hosts: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    resolver: Resolver | None = None

    def __post_init__(self) -> None:
        if not self.max_bytes > 0 or not self.seconds > 0:
            raise InvalidValue("max_bytes and seconds of DownloadRules must be above 0")
        if isinstance(self.hosts, str):
            raise InvalidValue("hosts of DownloadRules must be a tuple of names, not one name")

    def check(self, url: str) -> RequestTarget:
        return check_url(url, loopback=self.loopback, hosts=self.hosts)


async def download(url: str, rules: DownloadRules) -> AsyncIterator[bytes]:
    """Yield the bytes of the file. Raise AddressNotAllowed or DownloadFailed, possibly after some of the bytes.

    At most `MAX_REDIRECTS` redirects are followed; each one is checked like the first URL.
    """
    ends = asyncio.get_running_loop().time() + rules.seconds
    for _ in range(MAX_REDIRECTS + 1):
        exchange = await _opened(rules.check(url), rules, ends)
        try:
            if exchange.status == _OK:
                async for piece in exchange.body(rules.max_bytes):
                    yield piece
                return
            if exchange.status not in _REDIRECTS or not exchange.location:
                raise DownloadFailed(f"{exchange.target.host} returned HTTP {exchange.status} for the file")
            try:
                url = urljoin(url, exchange.location)
            except ValueError:
                raise DownloadFailed(
                    f"{exchange.target.host} redirected the file to something that is no URL"
                ) from None
        finally:
            exchange.close()
    raise DownloadFailed(f"the file was redirected more than {MAX_REDIRECTS} times")


async def _opened(target: RequestTarget, rules: DownloadRules, ends: float) -> _Exchange:
    """Connect, send the request and read the head of the response."""
    exchange = _Exchange(target, rules.seconds, ends)
    try:
        await exchange.begin(rules)
    except BaseException:
        exchange.close()
        raise
    return exchange


class _Exchange:
    """One GET request. The parser calls its ``on_…`` methods."""

    def __init__(self, target: RequestTarget, seconds: float, ends: float) -> None:
        self.target = target
        self.status = 0
        self.location = ""
        self._seconds = seconds
        self._ends = ends
        self._connection: OutboundConnection | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headed = self._complete = self._framed = False
        self._pieces: list[bytes] = []
        self._length: int | None = None
        self._encoding = "identity"

    async def begin(self, rules: DownloadRules) -> None:
        target, read = self.target, 0
        head = f"GET {target.path} HTTP/1.1\r\nHost: {target.netloc}\r\nUser-Agent: keelbolt\r\nAccept: */*\r\n"
        head += "Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
        try:
            async with asyncio.timeout_at(self._ends):
                self._connection = await connect(
                    target, loopback=rules.loopback, resolver=rules.resolver, tls=rules.tls
                )
                await self._connection.send(head.encode("ascii"))
        except (TimeoutError, OSError) as error:
            raise self._failed(error) from error
        while not self._headed:
            read += await self._more()
            if not self._headed and read > MAX_HEAD_BYTES:
                raise DownloadFailed(f"{target.host} returned a head of more than {MAX_HEAD_BYTES} bytes")
        if self._encoding != "identity":
            raise DownloadFailed(
                f"{target.host} returned the file compressed ({self._encoding[:20]}), although the request "
                "does not accept that"
            )

    async def body(self, most: int) -> AsyncIterator[bytes]:
        """Yield the body. Raise DownloadFailed if it is larger than ``most`` bytes or incomplete."""
        if self._length is not None and self._length > most:
            raise DownloadFailed(f"the file has {self._length} bytes, and at most {most} are allowed")
        size = other = 0  # other: bytes since the last ones of the file, such as trailers
        while True:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                size += len(piece)
                if size > most:
                    raise DownloadFailed(f"the file has more than {most} bytes")
                yield piece
            if self._complete and not self._pieces:
                return
            read = await self._more()
            other = 0 if self._pieces else other + read
            if other > MAX_HEAD_BYTES:
                raise DownloadFailed(f"{self.target.host} sent more than {MAX_HEAD_BYTES} bytes besides the file")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def _more(self) -> int:
        """Read some bytes and parse them."""
        assert self._connection is not None
        try:
            async with asyncio.timeout_at(self._ends):
                data = await self._connection.read()
        except (TimeoutError, OSError) as error:
            raise self._failed(error) from error
        if not data:
            if self._headed and not self._framed:  # a body without a length ends with the connection
                self._complete = True
                return 0
            raise DownloadFailed(f"{self.target.host} closed the connection before the whole file was sent")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise DownloadFailed(
                f"{self.target.host} switched to another protocol instead of returning the file"
            ) from None
        except httptools.HttpParserError as error:
            raise DownloadFailed(f"{self.target.host} returned a response that is not HTTP") from error
        return len(data)

    def _failed(self, error: Exception) -> DownloadFailed:
        host = self.target.host
        if isinstance(error, TimeoutError):
            return DownloadFailed(f"{host} did not send the file within {self._seconds:g} s")
        if isinstance(error, ssl.SSLError):
            return DownloadFailed(
                f"TLS with {host} failed: {getattr(error, 'verify_message', '') or error.reason}"[:300]
            )
        assert isinstance(error, OSError)
        return DownloadFailed(f"no connection to {host}: {error.strerror or type(error).__name__}"[:300])

    # -------------------------------------------------------------------------------------------- parser callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        text, known = value.decode("latin-1").strip(), name.lower()
        if known == b"location":
            self.location = text
        elif known == b"content-encoding":
            self._encoding = text.lower() or "identity"
        elif known == b"content-length":
            self._length, self._framed = int(text), True
        elif known == b"transfer-encoding":
            self._framed = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= _OK:  # another response follows a 1xx response
            self.status, self._headed = status, True

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._complete = self._headed
