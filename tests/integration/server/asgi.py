"""An agent in this process, called as an ASGI server calls it: the test controls every byte, header and pause."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Message, Scope

Headers = Sequence[tuple[str, str]]

IDS = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIMES = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@dataclass(slots=True)
class Reply:
    """The agent's response."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return next((value.decode("latin-1") for key, value in self.headers if key == name.encode()), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """Return the data of server-sent events."""
        return [json.loads(line[5:]) for line in self.body.splitlines() if line.startswith(b"data:")]

    def masked(self, *sent: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Return everything that a caller can distinguish, without its own data, new ids and times."""
        body = self.body
        for word in filter(None, sent):
            body = body.replace(json.dumps(word)[1:-1].encode(), b"<sent>")
        body = TIMES.sub(b"<time>", IDS.sub(b"<id>", body))
        new = {b"content-length": b"<length>", b"webhook-secret": b"<secret>"}
        headers = [(name, new.get(name, value)) for name, value in self.headers]
        return self.status, headers, body


async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    headers: Headers = (),
    body: bytes | Iterable[bytes] = b"",
    query: str = "",
    enough: Callable[[bytes], bool] | None = None,
    raw_headers: Iterable[tuple[bytes, bytes]] = (),
    patience_seconds: float = 20.0,
) -> Reply:
    """Send a request and read its response; with ``enough``, disconnect once it accepts the body."""
    chunks = [body] if isinstance(body, bytes) else list(body)
    reply, left = Reply(), asyncio.Event()
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]

    async def receive() -> Message:
        if chunks:
            return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not reply.status, "two answers to one request"
            reply.status, reply.headers = message["status"], list(message["headers"])
        else:
            assert reply.status
            reply.body += message.get("body", b"")
            if not message.get("more_body") or (enough is not None and enough(reply.body)):
                left.set()

    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": quote(path, safe="/%:?=&").encode("latin-1", "replace"),
        "root_path": "",
        "query_string": query.encode("latin-1", "replace"),
        "headers": [*lines, *raw_headers],
        "server": ("agent.example", 80),
        "client": ("192.0.2.1", 1234),
    }
    async with asyncio.timeout(patience_seconds):
        asking = asyncio.ensure_future(app(scope, receive, send))
        if enough is not None:
            leaving = asyncio.ensure_future(left.wait())
            await asyncio.wait((asking, leaving), return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if left.is_set() and not asking.done():
                asking.cancel()  # as servers do after a disconnect
                with contextlib.suppress(asyncio.CancelledError):
                    await asking
                return reply
        await asking
    assert reply.status, "no answer"
    return reply


def rpc(method: str, params: Any, *, id_: Any = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode()


async def call(app: ASGIApp, method: str, params: Any, *, headers: Headers = (), **more: Any) -> Reply:
    """Make a JSON-RPC call."""
    named = [("content-type", "application/json"), *headers]
    return await ask(app, "POST", "/", headers=named, body=rpc(method, params), **more)
