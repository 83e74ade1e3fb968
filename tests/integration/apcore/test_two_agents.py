"""The example's two agents, driven by the official clients of 0.3 and 1.3, and killed in the middle."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.apcore.test_example import EXAMPLE
from tests.integration.server.test_sdk_v03 import PYTHON
from tests.integration.server.test_serve_command import Serving, serving

PB: Any = import_module("a2a.types.a2a_pb2")
CLIENT: Any = import_module("a2a.client")

Send = Callable[..., Awaitable[dict[str, Any]]]


async def by_1_3(url: str, **given: Any) -> dict[str, Any]:
    """Send one message with the client of 1.3; return a summary of the task."""
    async with httpx.AsyncClient(timeout=60) as http:
        config = CLIENT.ClientConfig(httpx_client=http, streaming=True)
        client = await CLIENT.ClientFactory(config).create_from_url(url)
        part = PB.Part(text=given["text"]) if "text" in given else PB.Part()
        if "data" in given:
            part.data.struct_value.update(given["data"])
        message = PB.Message(message_id=str(uuid.uuid4()), role=PB.ROLE_USER, parts=[part])
        message.task_id = given.get("task") or ""
        message.context_id = given.get("context") or ""
        if given.get("skill"):
            message.metadata.update({"skillId": given["skill"]})
        reports: list[str] = []
        found = ""
        async for event in client.send_message(PB.SendMessageRequest(message=message)):
            found = event.status_update.task_id or event.task.id or found
            reports += [each.text for each in event.status_update.status.message.parts if each.text]
        task = await client.get_task(PB.GetTaskRequest(id=found))
        return {
            "id": task.id,
            "context": task.context_id,
            "state": PB.TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower().replace("_", "-"),
            "reports": reports,
            "output": [dict(each.data.struct_value) for artifact in task.artifacts for each in artifact.parts],
        }


async def by_0_3(url: str, **given: Any) -> dict[str, Any]:
    if not PYTHON.exists():
        pytest.skip("the official SDK 0.3 is not installed; `make test` does that")
    script = Path(__file__).with_name("old_call.py")
    child = await asyncio.create_subprocess_exec(
        PYTHON, "-W", "ignore", script, url, json.dumps(given), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    found: dict[str, Any] = json.loads(output)
    return found


def kill(process: Serving) -> None:
    assert process.stop(signal.SIGKILL) == -signal.SIGKILL


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


@pytest.fixture
def agents(tmp_path: Path) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return functions that start the shop and the carrier; the carrier always uses the same port."""
    port = free_port()
    (tmp_path / "shop").mkdir()
    (tmp_path / "carrier").mkdir()

    def shop() -> AbstractContextManager[Serving]:
        options = ("--extensions-dir", "extensions", "--approval", "caller")
        url = f"http://localhost:{port}"
        return serving(tmp_path / "shop", *options, cwd=EXAMPLE, CARRIER_URL=url, KEELBOLT_LEASE_SECONDS="1.5")

    def carrier() -> AbstractContextManager[Serving]:
        options = ("--extensions-dir", "carrier")
        return serving(tmp_path / "carrier", *options, cwd=EXAMPLE, at=port)

    return shop, carrier


@pytest.mark.parametrize("send", [by_0_3, by_1_3])
async def test_an_approval_a_stream_and_a_question_with_kill_9_in_between(agents: Any, send: Send) -> None:
    shop, _ = agents
    with shop() as first:
        refund = await send(first.url, data={"order": "A-1", "cents": 1250}, skill="shop.refund")
        assert refund["state"] == "input-required"
        order = await send(first.url, data={"article": "shirt"}, skill="shop.order")
        assert order["state"] == "input-required"
        assert order["reports"] == ["looking at the stock", "Which size of shirt?"]
        spelt = await send(first.url, data={"word": "abc"}, skill="text.spell")
        assert [each["letter"] for each in spelt["output"]] == ["a", "b", "c"]
        kill(first)
    with shop() as second:
        again = await send(second.url, text="XXL", task=order["id"], context=order["context"])
        assert again["state"] == "input-required"
        kill(second)
    with shop() as third:
        done = await send(third.url, data={"size": "M"}, task=order["id"], context=order["context"])
        assert (done["state"], done["output"]) == ("completed", [{"ordered": "shirt, M"}])
        assert done["reports"] == ["ordering"]
        paid = await send(third.url, text="approved", task=refund["id"], context=refund["context"])
        assert (paid["state"], paid["output"]) == ("completed", [{"receipt": "A-1: 12.50 paid back"}])


@pytest.mark.parametrize("send", [by_0_3, by_1_3])
async def test_a_delegation_with_both_agents_killed_while_the_user_is_asked(agents: Any, send: Send) -> None:
    shop, carrier = agents
    with carrier() as first_carrier:
        with shop() as first:
            asked = await send(first.url, data={"order": "A-17"}, skill="shop.deliver")
            assert asked["state"] == "input-required"
            assert asked["reports"][-1] == "Express or standard?"
            kill(first)
        kill(first_carrier)
    with carrier(), shop() as second:
        done = await send(second.url, data={"service": "express"}, task=asked["id"], context=asked["context"])
        assert (done["state"], done["output"]) == ("completed", [{"tracking": "A-17/express"}])
