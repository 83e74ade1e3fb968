"""HTTP helpers of the bindings: read a body, send a response, without a framework."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import chain
from typing import Any, ParamSpec, TypeVar

from starlette.types import Receive, Scope, Send

from keelbolt.errors import (
    HeadersTooLargeError,
    RequestTimeoutError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
)
from keelbolt.protocol.validation import DEFAULT
from keelbolt.timers import call_later, within

Header = tuple[bytes, bytes]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"

NOSNIFF: Header = (b"x-content-type-options", b"nosniff")
PRIVATE: tuple[Header, ...] = (NOSNIFF, (b"cache-control", b"no-store"))
"""Responses belong to their caller: caches must not store them, and browsers must not guess their type."""


_HEADERS = "keelbolt.headers"

PATIENCE_SECONDS = 1.0  # after this time without a response, the server watches for a disconnect


OFF_LOOP_BYTES = 65_536  # a larger body is parsed in a thread

P = ParamSpec("P")
T = TypeVar("T")


async def parsed(size: int, parse: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of ``parse`` for a body of ``size`` bytes; parse a large body in a thread.

    The event loop stays free to renew leases and serve other clients.
    """
    if size > OFF_LOOP_BYTES:
        return await asyncio.to_thread(parse, *arguments, **named)
    return parse(*arguments, **named)


class ClientGone(Exception):
    """The client disconnected before its request was complete, or before the response."""


async def read_body(scope: Scope, receive: Receive, limit: int, seconds: float = DEFAULT.body_seconds) -> bytes:
    """Return the body. Raise if it has more than ``limit`` bytes or takes longer than ``seconds``."""
    announced = header(scope, b"content-length") or ""
    if announced.isascii() and announced.isdigit() and (len(announced) > 18 or int(announced) > limit):
        raise RequestTooLargeError(f"the body has {announced[:30]} bytes; the limit is {limit}")
    try:
        with within(seconds):
            return await _read(receive, limit)
    except TimeoutError:
        raise RequestTimeoutError from None


async def _read(receive: Receive, limit: int) -> bytes:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return _checked(body, limit)
    gathered = bytearray(body)  # not a list: a client may send single bytes
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        gathered += message.get("body", b"")
        if len(gathered) > limit:
            raise RequestTooLargeError(f"the body has more than {limit} bytes")
    return bytes(gathered)


async def until_gone(receive: Receive) -> None:
    """Return when the client disconnects. The request must be read already."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_there(receive: Receive, answering: Coroutine[Any, Any, bytes]) -> bytes:
    """Return the response body, or raise ClientGone if the client disconnects first.

    Most responses are immediate; the connection is watched only for those that take longer than `PATIENCE_SECONDS`.
    """
    task = asyncio.current_task()
    assert task is not None
    watching: asyncio.Future[None] | None = None
    there, left = True, False

    def watch() -> None:
        nonlocal watching
        watching = asyncio.ensure_future(until_gone(receive))
        watching.add_done_callback(leave)

    def leave(gone: asyncio.Future[None]) -> None:
        nonlocal left
        if there and not gone.cancelled():
            left = True
            task.cancel()

    timer = call_later(PATIENCE_SECONDS, watch)
    try:
        return await answering
    except asyncio.CancelledError:
        if left and task.uncancel() == 0:  # otherwise another task cancelled this one
            raise ClientGone from None
        raise
    finally:
        there = False
        timer.cancel()
        if watching is not None:
            watching.cancel()


def _checked(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise RequestTooLargeError(f"the body has {len(body)} bytes; the limit is {limit}")
    return body


def check_headers(scope: Scope, limit: int) -> None:
    """Raise HeadersTooLargeError if path, query and headers have more than ``limit`` bytes."""
    size = len(scope["path"]) + len(scope.get("query_string", b""))
    size += sum(map(len, chain.from_iterable(scope["headers"])))
    if size > limit:
        raise HeadersTooLargeError(f"path, query and headers have {size} bytes; the limit is {limit}")


def check_content_type(scope: Scope, accepted: Sequence[str] = ("application/json", "application/a2a+json")) -> None:
    """Raise UnsupportedMediaTypeError unless the body is declared as JSON. A missing Content-Type is accepted.

    Pages of other origins must declare it: browsers send a body without a type cross-origin without a preflight.
    """
    value = header(scope, b"content-type")
    if not value and not same_origin(scope):
        raise UnsupportedMediaTypeError(f"send Content-Type: {accepted[0]}")
    if value and value.partition(";")[0].strip().lower() not in accepted:
        raise UnsupportedMediaTypeError(f"send {accepted[0]}, not {value[:100]!r}")


def same_origin(scope: Scope) -> bool:
    """Return whether the request comes from this agent's own page, or not from a page at all."""
    origin = header(scope, b"origin")
    return origin is None or origin.partition("://")[2] == header(scope, b"host")


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the first value of each header by its lower-case name; cached per request."""
    found: dict[bytes, bytes] | None = scope.get(_HEADERS)
    if found is None:
        found = scope[_HEADERS] = dict(scope["headers"][::-1])
    return found


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header with this lower-case name."""
    value = headers_of(scope).get(name)
    return None if value is None else value.decode("latin-1")


def header_list(scope: Scope, name: bytes) -> str | None:
    """Return a list header; values from several lines are joined."""
    if name not in headers_of(scope):
        return None
    lines: list[bytes] = [value for key, value in scope["headers"] if key == name]
    return b", ".join(lines).decode("latin-1")


async def respond(
    send: Send,
    status: int,
    body: bytes,
    *,
    content_type: bytes = JSON,
    headers: Iterable[Header] = (),
    caching: tuple[Header, ...] = PRIVATE,
    head: bool = False,
) -> None:
    """Send a complete response; with ``head``, without the body. ``caching`` is for responses shared by all callers."""
    start = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *caching, *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": b"" if head else body})
