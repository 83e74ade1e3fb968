"""Servers with the wire format of model providers: requests are recorded, and responses are scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reply:
    """``events`` are sent one by one as server-sent events; ``cut`` breaks the connection after them."""

    events: Sequence[str] = ()
    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    silent: bool = False  # accepts the request and never responds


@dataclass
class Provider:
    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            self.requests.append((first, headers, body))
            await self._reply(self.replies.pop(0), writer)
        finally:
            writer.close()

    async def _reply(self, reply: Reply, writer: asyncio.StreamWriter) -> None:
        if reply.silent:
            await asyncio.sleep(30)
            return
        more = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        if reply.status != 200:
            data = reply.body.encode()
            writer.write(f"HTTP/1.1 {reply.status} X\r\n{more}content-length: {len(data)}\r\n\r\n".encode() + data)
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for event in reply.events:
            data = event.encode()
            for piece in (data[: len(data) // 2], data[len(data) // 2 :]):  # an event may arrive in two chunks
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
        if not reply.cut:
            writer.write(b"0\r\n\r\n")
        await writer.drain()


@asynccontextmanager
async def provider(*replies: Reply) -> AsyncIterator[Provider]:
    found = Provider(replies=list(replies))
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()


def openai(*deltas: dict[str, Any], finish: str | None = "stop", **reply: Any) -> Reply:
    """Return a stream of chat completion chunks."""
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if finish is not None:
        chunks.append({**about, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        chunks.append({**about, "choices": [], "usage": usage})
    events = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks]
    return Reply([": keep-alive\n\n", *events, *(["data: [DONE]\n\n"] if finish is not None else [])], **reply)


def anthropic(*events: dict[str, Any], stop: bool = True, **reply: Any) -> Reply:
    """Return a stream of the messages API."""
    message = {"id": "msg_1", "role": "assistant", "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}}
    start = {"type": "message_start", "message": message}
    stream_events: list[dict[str, Any]] = [start, {"type": "ping"}, *events]
    if stop:
        stream_events.append(
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
        )
        stream_events.append({"type": "message_stop"})
    return Reply(
        [f"event: {each['type']}\ndata: {json.dumps(each, ensure_ascii=False)}\n\n" for each in stream_events], **reply
    )


def block(index: int, kind: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of one content block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": kind},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]
