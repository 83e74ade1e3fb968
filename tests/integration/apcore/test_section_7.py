"""Section 7 of the design of apcore agents: its sequences, end to end over HTTP, with restarts in between."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
from apcore import ACL, ACLRule

from keelbolt.apcore import ApcoreServer, CallerApproves
from keelbolt.client import A2AClient
from keelbolt.protocol.types import Part, Task
from keelbolt.server.settings import ServerSettings
from tests.integration.apcore.modules import (
    Count,
    Deploy,
    Echo,
    Giving,
    Sleeper,
    Total,
    Whoami,
    executor_of,
    registry_of,
)
from tests.integration.apcore.test_section_10 import authenticator, token
from tests.integration.server.serving import served, talking
from tests.integration.webhooks.receiver import receiving


async def rpc(client: httpx2.AsyncClient, method: str, params: Any, **headers: str) -> Any:
    """Make a JSON-RPC call in the format of apcore agents; return its result or its error."""
    body = {"jsonrpc": "2.0", "id": "req-001", "method": method, "params": params}
    answer = (await client.post("/", json=body, headers=headers)).json()
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", "req-001")
    return answer.get("result", answer.get("error"))


def send_params(*parts: Any, skill: str | None = None, context: str | None = None) -> dict[str, Any]:
    params: dict[str, Any] = {"message": {"role": "user", "parts": list(parts)}}
    params |= {"metadata": {"skillId": skill}} if skill else {}
    return params | ({"contextId": context} if context else {})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def data(value: Any) -> dict[str, Any]:
    return {"type": "data", "data": value, "mediaType": "application/json"}


async def test_section_7_1_a_message_returns_its_task() -> None:
    registry = registry_of(echo=Echo(), total=Total(), bad=Giving(RuntimeError("at /srv/app/x.py")))
    async with talking(ApcoreServer(registry)) as client:
        task = await rpc(client, "message/send", send_params(data({"numbers": [800, 600]}), skill="total"))
        assert task["status"]["state"] == "completed"
        [artifact] = task["artifacts"]
        assert artifact["parts"][0]["data"] == {"total": 1400, "count": 2}
        assert [step["state"] for step in task["metadata"]["stateTransitionHistory"]][:2] == ["submitted", "working"]
        missing = await rpc(client, "message/send", send_params(text("x")))
        assert (missing["code"], missing["message"]) == (-32602, "Missing required parameter: metadata.skillId")
        unknown = await rpc(client, "message/send", send_params(text("x"), skill="image.resize"))
        assert unknown == {
            "code": -32601,
            "message": "Skill not found: image.resize",
            "data": {"type": "ModuleNotFoundError"},
        }
        failed = await rpc(client, "message/send", send_params(data({}), skill="bad"))
        assert failed["status"]["state"] == "failed"
        assert "/srv" not in str(failed)


async def test_section_7_2_a_stream_has_a_chunk_for_each_of_the_module() -> None:
    async with talking(ApcoreServer(registry_of(count=Count()))) as client:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "message/stream",
            "params": send_params(data({"to": 3}), skill="count"),
        }
        answer = await client.post("/", json=body, headers={"accept": "text/event-stream"})
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.text.splitlines()
        ids = [int(line[3:]) for line in lines if line.startswith("id:")]
        assert ids == sorted(set(ids))
        events = [json.loads(line[5:])["result"] for line in lines if line.startswith("data:")]
        states = [event["status"]["state"] for event in events if "status" in event]
        assert (states[0], states[-1]) == ("submitted", "completed")
        chunks = [event["artifact"]["parts"][0]["data"] for event in events if event["kind"] == "artifact-update"]
        assert chunks == [{"number": 1}, {"number": 2}, {"number": 3}]
        assert events[-1]["final"] is True


async def test_section_7_3_an_approval_is_given_in_the_same_context_after_a_restart(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/agent.db"

    def agent() -> ApcoreServer:
        return ApcoreServer(
            executor_of(registry_of(deploy__service=Deploy(), echo=Echo()), approval_handler=CallerApproves()),
            storage=storage,
        )

    Deploy.deployed.clear()
    async with talking(agent()) as client:
        first = await rpc(client, "message/send", send_params(text("the website"), skill="deploy.service"))
        assert first["status"]["state"] == "input-required"
        assert "Approval required for deploy.service" in str(first["status"]["message"])
    async with talking(agent()) as client:
        second = await rpc(client, "message/send", send_params(text("approved"), context=first["contextId"]))
        assert (second["id"], second["contextId"]) == (first["id"], first["contextId"])
        assert second["status"]["state"] == "completed"
        page = await rpc(client, "tasks/list", {"contextId": first["contextId"]})
        assert ([task["id"] for task in page["tasks"]], page["nextCursor"]) == ([first["id"]], None)
    assert Deploy.deployed == ["the website"]
    Deploy.deployed.clear()


async def test_section_7_3_a_module_sees_the_conversation() -> None:
    """The messages of its task and of earlier tasks in the context, but not those of other callers."""
    registry = registry_of(echo=Echo(), who=Whoami())
    async with talking(ApcoreServer(registry, auth=authenticator())) as client:
        ann, ben = ({"Authorization": f"Bearer {token(sub=name)}"} for name in ("ann", "ben"))
        first = await rpc(client, "message/send", send_params(text("one"), skill="echo"), **ann)
        context = first["contextId"]
        await rpc(client, "message/send", send_params(text("two"), skill="echo", context=context), **ann)
        found = await rpc(client, "message/send", send_params(data({"x": 1}), skill="who", context=context), **ann)
        history = found["artifacts"][0]["parts"][0]["data"]["a2a"]["history"]
        assert [(each["role"], each["parts"][0]["text"]) for each in history] == [
            ("ROLE_USER", "one"),
            ("ROLE_USER", "two"),
        ]
        other = await rpc(client, "message/send", send_params(data({"x": 1}), skill="who", context=context), **ben)
        assert other["artifacts"][0]["parts"][0]["data"]["a2a"]["history"] == []


async def test_section_7_4_a_client_finds_the_agent_and_calls_it() -> None:
    async with served(ApcoreServer(registry_of(echo=Echo(), total=Total()))) as url, A2AClient(url) as client:
        card = await client.agent_card
        assert [skill["id"] for skill in card["skills"]] == ["echo", "total"]
        task = await client.send_message([Part(data={"numbers": [1, 2]})], metadata={"skillId": "total"})
        assert isinstance(task, Task)
        assert task.artifacts[0].parts[0].data == {"total": 3, "count": 2}
        assert await client.agent_card is card  # cached, and not fetched again


async def test_section_7_5_a_webhook_gets_the_end_from_the_next_process(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/agent.db"
    settings = ServerSettings.of(webhook_loopback=True)
    sleeper = Sleeper()

    def agent(module: Any) -> ApcoreServer:
        return ApcoreServer(
            registry_of(report__generate=module),
            storage=storage,
            push_notifications=True,
            settings=settings,
            shutdown_timeout=0.1,
        )

    async with receiving() as receiver:
        async with talking(agent(sleeper)) as client:
            params = send_params(data({"deaf": True}), skill="report.generate") | {"configuration": {"blocking": False}}
            task = await rpc(client, "message/send", params)
            assert task["status"]["state"] in ("submitted", "working")
            config = await rpc(
                client, "tasks/pushNotificationConfig/set", {"taskId": task["id"], "url": f"{receiver.url}/a2a"}
            )
            assert "error" not in config
            await sleeper.began.wait()
        async with talking(agent(Giving({"report": "done"}))):
            async with asyncio.timeout(30):
                while not any(b"completed" in one.body.lower() for one in receiver.arrivals):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        last = receiver.arrivals[-1]
        assert b"completed" in last.body.lower()
        assert task["id"].encode() in last.body


async def test_section_7_6_a_token_becomes_the_identity_for_the_acl() -> None:
    rules = [ACLRule(["*"], ["whoami"], "allow", conditions={"identity_types": ["service"]})]
    executor = executor_of(registry_of(whoami=Whoami(), echo=Echo()), acl=ACL(rules))
    server = ApcoreServer(executor, auth=authenticator())
    async with talking(server) as client:
        assert (await client.post("/", json={})).status_code == 401
        task = await rpc(
            client,
            "message/send",
            send_params(data({}), skill="whoami"),
            authorization=f"Bearer {token(sub='user-123', type='service', roles=['admin'])}",
        )
        found = task["artifacts"][0]["parts"][0]["data"]
        assert (found["id"], found["type"], found["roles"]) == ("user-123", "service", ["admin"])
        forged = await client.post("/", json={}, headers={"authorization": f"Bearer {token(secret='x' * 40)}"})
        assert forged.status_code == 401
        user = {"authorization": f"Bearer {token(sub='user-123')}"}
        denied = await rpc(client, "message/send", send_params(data({}), skill="whoami"), **user)
        assert denied["message"] == "Skill not found: whoami"
