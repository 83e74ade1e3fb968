"""Calls an agent of modules."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp

from keelbolt.kernel import new_id
from tests.integration.server.asgi import Headers, Reply, call


def message(*parts: Any, skill: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a message of 1.0 with a text part for text, a data part for an object."""
    made = [{"text": part} if isinstance(part, str) else part if _is_part(part) else {"data": part} for part in parts]
    metadata = {"metadata": {"skillId": skill}} if skill else {}
    return {"messageId": new_id(), "role": "ROLE_USER", "parts": made, **metadata, **more}


def _is_part(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and bool(part.keys() & {"raw", "url", "data", "text"} and len(part) <= 4)
        and ("raw" in part or "url" in part or "data" in part)
    )


async def send(app: ASGIApp, *parts: Any, skill: str | None = None, headers: Headers = (), **more: Any) -> Reply:
    """Call SendMessage of 1.0. A given message id is also the idempotency key."""
    if "messageId" in more:
        headers = [*headers, ("idempotency-key", more["messageId"])]
    return await call(app, "SendMessage", {"message": message(*parts, skill=skill, **more)}, headers=headers)


async def task_of(app: ASGIApp, *parts: Any, skill: str | None = None, **more: Any) -> dict[str, Any]:
    """Return the task that a message creates."""
    reply = (await send(app, *parts, skill=skill, **more)).json
    assert "result" in reply, reply
    task: dict[str, Any] = reply["result"]["task"]
    return task


async def streamed(app: ASGIApp, *parts: Any, skill: str | None = None, headers: Headers = (), **more: Any) -> Any:
    """Send a message with streaming; return its task when the stream has ended."""
    params = {"message": message(*parts, skill=skill, **more)}
    reply = await call(app, "SendStreamingMessage", params, headers=headers)
    task_id = reply.events[0]["result"]["task"]["id"]
    return (await call(app, "GetTask", {"id": task_id}, headers=headers)).json["result"]


async def error_of(app: ASGIApp, *parts: Any, skill: str | None = None, **more: Any) -> dict[str, Any]:
    """Return the error that refuses a message."""
    reply = (await send(app, *parts, skill=skill, **more)).json
    assert "error" in reply, reply
    error: dict[str, Any] = reply["error"]
    return error


def output(task: dict[str, Any]) -> Any:
    """Return the data of the first part of the only artifact."""
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
    [artifact] = task["artifacts"]
    return artifact["parts"][0]["data"]


def state(task: dict[str, Any]) -> str:
    found: str = task["status"]["state"].removeprefix("TASK_STATE_").lower()
    return found


def status_text(task: dict[str, Any]) -> str:
    """Return the text of the status."""
    return "".join(part.get("text", "") for part in task["status"]["message"]["parts"])


def status_data(task: dict[str, Any]) -> Any:
    """Return the data of the status."""
    return next(part["data"] for part in task["status"]["message"]["parts"] if "data" in part)
