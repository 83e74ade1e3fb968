"""The agent for the conformance kits does what they require."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance_agent.__main__ import card, server
from tests.integration.server.asgi import call


async def sent(message_id: str) -> Any:
    async with server(card()) as agent:
        message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        return (await call(agent.app, "SendMessage", {"message": message})).json["result"]


@pytest.mark.parametrize(
    ("message_id", "state"),
    [
        ("tck-complete-task-1", "COMPLETED"),
        ("tck-input-required-1", "INPUT_REQUIRED"),
        ("tck-reject-task-1", "REJECTED"),
        ("tck-whatever-1", "COMPLETED"),
        ("test-message-id-1", "INPUT_REQUIRED"),
    ],
)
async def test_states(message_id: str, state: str) -> None:
    assert (await sent(message_id))["task"]["status"]["state"] == f"TASK_STATE_{state}"


@pytest.mark.parametrize(
    ("message_id", "part"),
    [
        ("tck-artifact-text", {"text": "Generated text content"}),
        ("tck-artifact-file", {"raw": "ZmlsZSBjb250ZW50", "filename": "output.txt", "mediaType": "text/plain"}),
        (
            "tck-artifact-file-url",
            {"url": "https://example.com/output.txt", "filename": "output.txt", "mediaType": "text/plain"},
        ),
        ("tck-artifact-data", {"data": {"key": "value", "count": 42}}),
        ("tck-stream-001", {"text": "Stream hello from TCK"}),
    ],
)
async def test_artifacts(message_id: str, part: dict[str, Any]) -> None:
    task = (await sent(message_id))["task"]
    assert [artifact["parts"] for artifact in task["artifacts"]] == [[part]]


async def test_a_message() -> None:
    assert (await sent("tck-message-response"))["message"]["parts"] == [{"text": "Direct message response"}]


async def test_the_same_id_again_is_another_task() -> None:
    """The kits send different messages with one id."""
    async with server(card()) as agent:
        ids = set()
        for text in ("one", "two", "two"):
            message = {"messageId": "tck-x", "role": "ROLE_USER", "parts": [{"text": text}]}
            reply = await call(agent.app, "SendMessage", {"message": message})
            ids.add(reply.json["result"]["task"]["id"])
        assert len(ids) == 3
