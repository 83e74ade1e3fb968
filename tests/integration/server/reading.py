"""Reads server-sent events as they arrive."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2

Event = tuple[int | None, Any]


async def events(response: httpx2.Response) -> AsyncIterator[Event]:
    """Yield the id and data of each event; comments and hints are skipped."""
    seq: int | None = None
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            seq = int(line[4:])
        elif line.startswith("data: "):
            value = json.loads(line[6:])
            yield seq, value.get("result", value)
            seq = None


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def sending(text: str, message_id: str = "m", **more: Any) -> dict[str, Any]:
    """Return the parameters of a send with this text."""
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **more}}


async def streamed(
    client: httpx2.AsyncClient, text: str, message_id: str = "m", *, key: str | None = None
) -> list[Event]:
    """Return all events of a stream."""
    headers = {"Idempotency-Key": key} if key is not None else {}
    asked = rpc("SendStreamingMessage", sending(text, message_id))
    async with client.stream("POST", "/", json=asked, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        return [event async for event in events(response)]


async def resumed(client: httpx2.AsyncClient, task_id: str, after: int, *, limit: int = 10_000) -> list[Event]:
    """Return the events of a task after this one, at most this many."""
    found: list[Event] = []
    headers = {"Last-Event-ID": str(after)}
    async with client.stream("POST", "/", json=rpc("SubscribeToTask", {"id": task_id}), headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream"), await response.aread()
        async for event in events(response):
            found.append(event)
            if len(found) >= limit:
                break
    return found
