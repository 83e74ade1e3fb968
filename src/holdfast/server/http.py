"""The little of HTTP that the bindings need: a body in, an answer out, without a framework between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.types import Receive, Scope, Send

from holdfast.errors import RequestTooLargeError, UnsupportedMediaTypeError

Header = tuple[bytes, bytes]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"


class ClientGone(Exception):
    """The client went away before its request was complete."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The body, at most ``limit`` bytes of it."""
    announced = header(scope, b"content-length")
    if announced is not None and announced.isdigit() and int(announced) > limit:
        raise RequestTooLargeError(f"the body has {announced} bytes; at most {limit} are taken")
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return _checked(body, limit)
    chunks, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise RequestTooLargeError(f"the body has more than {limit} bytes")
    return b"".join(chunks)


def _checked(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise RequestTooLargeError(f"the body has {len(body)} bytes; at most {limit} are taken")
    return body


def check_content_type(scope: Scope, accepted: Sequence[str] = ("application/json", "application/a2a+json")) -> None:
    """Raise unless the body is said to be JSON; a client that says nothing is believed to send it."""
    value = header(scope, b"content-type")
    if value and value.partition(";")[0].strip().lower() not in accepted:
        raise UnsupportedMediaTypeError(f"send {accepted[0]}, not {value[:100]!r}")


def header(scope: Scope, name: bytes) -> str | None:
    """The first header with this (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return None


async def respond(
    send: Send, status: int, body: bytes, *, content_type: bytes = JSON, headers: Iterable[Header] = ()
) -> None:
    """Send a whole answer."""
    start = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
