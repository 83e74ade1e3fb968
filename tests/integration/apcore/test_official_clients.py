"""The official SDK's clients, 0.3 and 1.x, against an agent of modules."""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from keelbolt.apcore import ApcoreServer, CallerApproves
from tests.integration.apcore.modules import Count, Deploy, Echo, Total, executor_of, registry_of
from tests.integration.server.serving import served
from tests.integration.server.test_sdk_v03 import PYTHON

PB: Any = import_module("a2a.types.a2a_pb2")
CLIENT: Any = import_module("a2a.client")

SKILLS = ["count", "deploy", "echo", "total"]


def agent() -> ApcoreServer:
    registry = registry_of(echo=Echo(), total=Total(), count=Count(), deploy=Deploy())
    return ApcoreServer(executor_of(registry, approval_handler=CallerApproves()))


async def test_the_official_client_of_0_3() -> None:
    if not PYTHON.exists():
        pytest.skip("the official SDK 0.3 is not installed; `make test` does that")
    async with served(agent()) as url:
        script = Path(__file__).with_name("old_client.py")
        child = await asyncio.create_subprocess_exec(
            PYTHON, "-W", "ignore", script, url, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await child.communicate()
    assert json.loads(output) == {
        "skills": SKILLS,
        "total": {"total": 9007199254740994, "count": 2},
        "echo": {"text": "hello"},
        "count": [1, 2, 3],
        "asked": "input-required",
        "done": [True, "completed"],
    }


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_official_client_of_1_0(binding: str) -> None:
    async with served(agent()) as url, httpx.AsyncClient(timeout=20) as http:
        config = CLIENT.ClientConfig(httpx_client=http, streaming=True, supported_protocol_bindings=[binding])
        client = await CLIENT.ClientFactory(config).create_from_url(url)
        card = await CLIENT.A2ACardResolver(http, url).get_agent_card()
        assert [skill.id for skill in card.skills] == SKILLS

        async def events(part: Any, skill: str | None = None, **more: str) -> list[Any]:
            sent = PB.Message(message_id=f"{skill}{more}", role=PB.ROLE_USER, parts=[part], **more)
            if skill is not None:
                sent.metadata.update({"skillId": skill})
            return [event async for event in client.send_message(PB.SendMessageRequest(message=sent))]

        part = PB.Part()
        part.data.struct_value.update({"numbers": [3, 4], "factor": 2})  # a Struct converts them to doubles
        got = await events(part, "total")
        [artifact] = [event.artifact_update for event in got if event.HasField("artifact_update")]
        assert artifact.artifact.parts[0].data.struct_value["total"] == 14
        part = PB.Part()
        part.data.struct_value.update({"to": 3})
        got = await events(part, "count")
        chunks = [event.artifact_update.artifact for event in got if event.HasField("artifact_update")]
        assert [chunk.parts[0].data.struct_value["number"] for chunk in chunks] == [1, 2, 3]
        asked = (await events(PB.Part(text="the website"), "deploy"))[-1].status_update
        assert asked.status.state == PB.TASK_STATE_INPUT_REQUIRED
        done = (await events(PB.Part(text="approved"), task_id=asked.task_id))[-1].status_update
        assert (done.task_id, done.status.state) == (asked.task_id, PB.TASK_STATE_COMPLETED)
