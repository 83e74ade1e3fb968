"""HTTP for the client: limits on time and size, no redirects, credentials only for their own origins.

Only this module imports httpx2; it is imported with the first request. A partial event of a broken connection is
dropped; the agent sends it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2
from pydantic_core import from_json

from keelbolt.client.asgi import App, AsgiTransport
from keelbolt.client.credentials import Credentials
from keelbolt.client.endpoints import origin_of, place_of
from keelbolt.errors import A2AConnectionError, A2AResponseError, A2ATimeoutError, KeelboltError
from keelbolt.outbound.reasons import connection_reason
from keelbolt.protocol.types import Json

CONNECT_SECONDS = 10.0
IDLE_CONNECTION_SECONDS = 3.0  # servers close idle connections after 5 s; stay below that

BROKEN = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError, httpx2.CloseError)
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
BASE_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "keelbolt"}
"""No compression: protects against decompression bombs."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str = ""

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Json:
        """Return the decoded body. Raise A2AResponseError."""
        return read_json(self.body, status=self.status)


def read_json(body: bytes, *, status: int | None = None) -> Json:
    """Return the value of a JSON text from an agent. Raise A2AResponseError."""
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError:
        raise A2AResponseError("the agent's response is not JSON", status=status) from None


class Http:
    """A connection pool, or an ASGI ``app`` instead. Credentials are sent only to ``origins``."""

    def __init__(
        self,
        *,
        credentials: Credentials | None = None,
        origins: frozenset[str] = frozenset(),
        timeout: float = 30.0,
        idle_seconds: float = 60.0,
        answer_bytes: int = 32 * 1024 * 1024,
        client: httpx2.AsyncClient | None = None,
        app: App | None = None,
        verify: Any = True,
    ) -> None:
        self._credentials = credentials or Credentials()
        self._app = None if app is None else AsgiTransport(app)
        self._origins = origins
        self.timeout = timeout
        self._idle = idle_seconds
        self.answer_bytes = answer_bytes
        self._owned = client is None
        self._client = client or httpx2.AsyncClient(
            transport=self._app,
            verify=_authorities() if verify is True else verify,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            limits=httpx2.Limits(
                max_connections=None, max_keepalive_connections=20, keepalive_expiry=IDLE_CONNECTION_SECONDS
            ),
        )

    async def close(self) -> None:
        if self._owned:
            await self._client.aclose()

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        seconds: float | None = None,
        limit: int | None = None,
        again: bool = False,
    ) -> Reply:
        """Send a request and return its response. Raise A2AConnectionError, A2ATimeoutError or A2AResponseError.

        With ``again`` the request may arrive twice: it is repeated once if the connection breaks, for example because
        the agent closed a kept-alive connection at the same moment.
        """
        seconds = seconds or self.timeout
        limit = self.answer_bytes if limit is None else limit
        try:
            async with asyncio.timeout(seconds):
                try:
                    return await self._answer(method, url, headers, body, seconds, limit)
                except BROKEN:
                    if not again:
                        raise
                return await self._answer(method, url, headers, body, seconds, limit)
        except TimeoutError:
            raise A2ATimeoutError(f"{place_of(url)}: the agent did not respond within {seconds:g} seconds") from None
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise connection_error(error, url) from error

    async def _answer(
        self, method: str, url: str, headers: Mapping[str, str] | None, body: bytes | None, seconds: float, limit: int
    ) -> Reply:
        response = await self._send(method, url, headers, body, seconds, read_seconds=None)
        try:
            content = await _content(response, limit)
        finally:
            await response.aclose()
        if response.status_code >= 500 and (stream := response.extensions.get("network_stream")) is not None:
            await stream.aclose()  # servers often close such a connection; the next request would fail
        return Reply(response.status_code, response.headers, content, url)

    @contextlib.asynccontextmanager
    async def listen(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> AsyncIterator[Reply | AsyncGenerator[bytes, None]]:
        """Open a stream. Yield its blocks, or a complete response if the agent does not stream.

        A stream that is silent for longer than ``idle_seconds`` counts as broken.
        """
        try:
            async with asyncio.timeout(max(self.timeout, self._idle)):
                response = await self._send(method, url, headers, body, self.timeout, read_seconds=self._idle)
        except TimeoutError:
            raise A2ATimeoutError(f"{place_of(url)}: the agent did not open the stream in time") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise connection_error(error, url) from error
        try:
            reply = Reply(response.status_code, response.headers, b"", url)
            if response.status_code == 200 and reply.content_type == "text/event-stream":
                yield _blocks(response, url)
            else:
                try:
                    async with asyncio.timeout(self.timeout):
                        content = await _content(response, self.answer_bytes)
                except TimeoutError:
                    raise A2ATimeoutError from None
                except (httpx2.HTTPError, httpx2.StreamError) as error:
                    raise connection_error(error, url) from error
                yield Reply(response.status_code, response.headers, content, url)
        finally:
            await response.aclose()

    async def add_credentials(self, headers: dict[str, str], url: str) -> bool:
        """Add the credentials if the URL's origin is trusted; return whether it is."""
        trusted = bool(self._credentials) and (self._app is not None or origin_of(url) in self._origins)
        if trusted:
            await self._credentials.apply(headers)
        return trusted

    async def _send(
        self,
        method: str,
        url: str,
        given: Mapping[str, str] | None,
        body: bytes | None,
        seconds: float,
        *,
        read_seconds: float | None,
    ) -> httpx2.Response:
        headers = {**BASE_HEADERS, **(given or {})}
        trusted = await self.add_credentials(headers, url)
        timeout = httpx2.Timeout(
            connect=min(CONNECT_SECONDS, seconds), read=read_seconds, write=seconds, pool=CONNECT_SECONDS
        )
        request = self._client.build_request(method, url, headers=headers, content=body, timeout=timeout)
        auth = self._credentials.httpx if trusted else None
        response = await self._client.send(request, stream=True, auth=auth, follow_redirects=False)
        try:
            _check(response)
        except KeelboltError:
            await response.aclose()
            raise
        return response


@lru_cache(maxsize=1)
def _authorities() -> ssl.SSLContext:
    """Return the trusted certificate authorities; cached, because loading them is slow."""
    return httpx2.create_ssl_context()


def _check(response: httpx2.Response) -> None:
    if 300 <= response.status_code < 400 and response.status_code != 304:
        raise A2AResponseError(
            f"the agent redirects to {_place(response)}; redirects are not followed, since credentials are for one "
            "origin: use that address",
            status=response.status_code,
        )
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise A2AResponseError(
            "the agent's response is compressed, which was not requested", status=response.status_code
        )


def _place(response: httpx2.Response) -> str:
    try:
        return origin_of(str(response.url.join(response.headers.get("location", ""))))
    except (ValueError, httpx2.InvalidURL):
        return "elsewhere"


async def _content(response: httpx2.Response, limit: int) -> bytes:
    announced = response.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and (len(announced) > 18 or int(announced) > limit):
        raise A2AResponseError(f"the response has more than {limit} bytes", status=response.status_code)
    content = bytearray()
    async for block in response.aiter_raw():
        content += block
        if len(content) > limit:
            raise A2AResponseError(f"the response has more than {limit} bytes", status=response.status_code)
    return bytes(content)


async def _blocks(response: httpx2.Response, url: str) -> AsyncGenerator[bytes, None]:
    try:
        async for block in response.aiter_raw():
            yield block
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        raise connection_error(error, url) from error


def connection_error(error: Exception, url: str) -> A2AConnectionError:
    """Return the connection error with the address and the reason."""
    place = place_of(url)
    if isinstance(error, NOT_SENT):
        slow = isinstance(error, httpx2.TimeoutException)
        kind: type[A2AConnectionError] = A2ATimeoutError if slow else A2AConnectionError
        reason = "no connection in time" if slow else connection_reason(error)
        return kind(f"{place}: {reason}. Is the agent running, and is the address right?", sent=False)
    if isinstance(error, httpx2.TimeoutException):
        return A2ATimeoutError(f"{place}: timed out while waiting for data from the agent")
    return A2AConnectionError(f"{place}: the connection to the agent broke")


# ------------------------------------------------------------------------------------------------------------------ sse


_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """``data``: the data lines joined by line feeds. ``id``: the last event id at its end."""

    data: bytes
    id: str | None = None
    name: str = "message"


class Parser:
    """Incremental parser. ``retry_seconds`` is the reconnection delay that the server requests.

    It holds at most ``limit`` bytes of an event, and its cost depends on the number of bytes, not of the blocks.
    """

    def __init__(self, limit: int) -> None:
        self.retry_seconds: float | None = None
        self._limit = limit
        self._rest = bytearray()  # the incomplete last line
        self._data = bytearray()  # of the current event, with a line feed after each line
        self._id: str | None = None
        self._name = ""
        self._begun = False
        self._returned = False  # the last block ended with CR: a line feed may follow, which belongs to it

    def feed(self, block: bytes) -> Iterator[ServerEvent]:
        """Yield the events that this block completes. Raise A2AResponseError if one is too large."""
        if self._returned and block:
            block, self._returned = block.removeprefix(b"\n"), False
        if b"\r" in block:
            self._returned = block.endswith(b"\r")
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *ends, rest = block.split(b"\n")
        for end in ends:
            line = bytes(self._rest) + end if self._rest else end
            self._rest.clear()
            if not self._begun:
                line, self._begun = line.removeprefix(_BOM), True
            if line:
                self._line(line)
                continue
            name, self._name = self._name, ""
            if self._data:
                data = bytes(self._data[:-1])
                self._data.clear()
                yield ServerEvent(data, self._id, name or "message")
        self._rest += rest
        self._check_size()

    def _check_size(self) -> None:
        if len(self._rest) + len(self._data) > self._limit:
            raise A2AResponseError(f"an event of the stream has more than {self._limit} bytes")

    def _line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data += value + b"\n"
            self._check_size()
        elif name == b"id":
            if b"\0" not in value and len(value) <= 1024:
                self._id = value.decode("utf-8", "replace")
        elif name == b"event":
            self._name = value[:100].decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 8:
            self.retry_seconds = int(value) / 1000
