"""An agent with misbehaviour that the test sets byte by byte: a raw server with a table of responses by path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from keelbolt.protocol.extensions import RESUME

Answer = bytes | Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]
CARD_PATH = "/.well-known/agent-card.json"


@dataclass(slots=True)
class Asked:
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class BadAgent:
    """``answers`` by path; each ``POST /`` gets the next of ``calls``, the last one repeatedly."""

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    calls: list[Answer] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def card(self, url: str | None = None, *, resume: bool = True, **more: Any) -> bytes:
        extensions = [{"uri": RESUME}] if resume else []
        interfaces = [{"url": url or f"{self.url}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
        card = {
            "name": "Bad",
            "description": "",
            "version": "1",
            "supportedInterfaces": interfaces,
            "capabilities": {"streaming": True, "extensions": extensions},
            "skills": [],
        }
        return http(json.dumps(card | more).encode())

    @property
    def posts(self) -> list[Asked]:
        return [each for each in self.asked if each.method == "POST"]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await _read(reader)
            self.asked.append(asked)
            answer: Answer = self.answers.get(asked.path, http(b"nothing", 404, "text/plain"))
            if asked.method == "POST" and asked.path == "/" and self.calls:
                answer = self.calls.pop(0) if len(self.calls) > 1 else self.calls[0]
            if callable(answer):
                await answer(asked, writer)
            else:
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def bad_agent() -> AsyncIterator[BadAgent]:
    agent = BadAgent()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(agent._serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    agent.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    agent.answers[CARD_PATH] = agent.card()
    try:
        yield agent
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body)


def http(body: bytes, status: int = 200, kind: str = "application/json", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def result(value: Any, id_: Any = 1) -> bytes:
    return http(json.dumps({"jsonrpc": "2.0", "id": id_, "result": value}).encode())


SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def task(state: str = "SUBMITTED", **more: Any) -> dict[str, Any]:
    return {"task": {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}, **more}}


def status(state: str) -> dict[str, Any]:
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}}


def chunk(text: str) -> dict[str, Any]:
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "append": True}}


def events(*values: tuple[int | None, dict[str, Any]]) -> Answer:
    """Return a stream of these events with these ids, which then ends."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE)
        for seq, value in values:
            data = json.dumps({"jsonrpc": "2.0", "id": asked.json["id"], "result": value}).encode()
            writer.write(b"" if seq is None else b"id: %d\n" % seq)
            writer.write(b"data: %b\n\n" % data)
        await writer.drain()

    return answer


async def silence(_asked: Asked, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def slow_stream(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Open a stream and send nothing."""
    writer.write(SSE)
    await writer.drain()
    await asyncio.sleep(3600)


async def drip(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Send a response that never ends, a byte at a time."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def flood(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Send an excessive number of bytes, without a length."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
    while True:
        writer.write(b" " * 65536)
        await writer.drain()
