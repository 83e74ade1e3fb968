"""Webhooks of clients of a whole agent: by JSON-RPC, in both versions, from the first message on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from keelbolt.kernel import new_id
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from tests.integration.server.asgi import Reply, call
from tests.integration.tasks.stage import until
from tests.integration.webhooks.receiver import Receiver
from tests.security.test_addresses import NAMES, PRIVATE, SPELLED, URLS


async def converse(ctx: TaskContext) -> None:
    if ctx.user_text == "ask":
        await ctx.request_input("which one?")
    else:
        await ctx.complete()


def agent(**settings: Any) -> A2AServer:
    capabilities = CapabilitiesConfig(streaming=True, push_notifications=True)
    card = AgentCardConfig(name="Asks", description="Asks back", capabilities=capabilities)
    return A2AServer(worker=converse, agent_card=card, settings=ServerSettings.of({}, **settings))


@pytest.fixture
async def server() -> AsyncIterator[A2AServer]:
    async with agent(webhook_loopback=True) as server:
        yield server


def sending(text: str, config: dict[str, Any] | None = None, **ids: str) -> dict[str, Any]:
    message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": text}], **ids}
    return {"message": message, "configuration": {"taskPushNotificationConfig": config} if config is not None else {}}


async def send(server: A2AServer, params: dict[str, Any]) -> dict[str, Any]:
    key = [("idempotency-key", params["message"]["messageId"])]
    task: dict[str, Any] = (await call(server.app, "SendMessage", params, headers=key)).json["result"]["task"]
    return task


def states(receiver: Receiver) -> list[str]:
    names = [arrival.json["statusUpdate"]["status"]["state"] for arrival in receiver.arrivals]
    return [state.removeprefix("TASK_STATE_").lower() for state in names]


async def test_a_config_that_comes_with_an_answer_gets_the_whole_turn(server: A2AServer, receiver: Receiver) -> None:
    """The webhook gets the events of this turn, none of the previous one; a repeated answer creates no other config."""
    task = await send(server, sending("ask"))
    answer = sending("go", {"url": receiver.url}, taskId=task["id"])
    await send(server, answer)
    await send(server, answer)
    await until(lambda: len(receiver.arrivals) == 3)
    assert states(receiver) == ["submitted", "working", "completed"]
    listed = (await call(server.app, "ListTaskPushNotificationConfigs", {"taskId": task["id"]})).json["result"]
    assert len(listed["configs"]) == 1


async def test_a_config_that_is_refused_with_a_message_leaves_no_task(server: A2AServer) -> None:
    refused = await call(server.app, "SendMessage", sending("go", {"url": "http://10.0.0.1/"}))
    assert refused.json["error"]["code"] == -32602
    assert (await call(server.app, "ListTasks", {})).json["result"]["tasks"] == []


async def test_a_client_of_0_3_gets_the_task(server: A2AServer, receiver: Receiver) -> None:
    message = {"kind": "message", "messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "go"}]}
    config = {"url": receiver.url, "token": "mine", "authentication": {"schemes": ["Bearer"], "credentials": "secret"}}
    sent = await call(
        server.app, "message/send", {"message": message, "configuration": {"pushNotificationConfig": config}}
    )
    task_id = sent.json["result"]["id"]
    await until(lambda: len(receiver.arrivals) == 3)
    assert [arrival.json["status"]["state"] for arrival in receiver.arrivals] == ["submitted", "working", "completed"]
    for arrival in receiver.arrivals:
        assert (arrival.json["id"], arrival.json["kind"]) == (task_id, "task")
        assert arrival.headers["authorization"] == "Bearer secret"
        assert arrival.headers["x-a2a-notification-token"] == "mine"
    kept = await call(server.app, "tasks/pushNotificationConfig/get", {"id": task_id})
    assert kept.json["result"]["taskId"] == task_id
    assert b"secret" not in kept.body


async def test_events_of_a_paused_task_continue(server: A2AServer, receiver: Receiver) -> None:
    task = await send(server, sending("ask", {"url": receiver.url, "id": "c"}))
    await until(lambda: states(receiver) == ["submitted", "working", "input_required"])
    await send(server, sending("go", taskId=task["id"]))
    await until(lambda: len(receiver.arrivals) == 6)
    assert states(receiver)[3:] == ["submitted", "working", "completed"]
    assert receiver.seqs() == sorted(set(receiver.seqs()))


BAD = [*(f"https://{host}/hook" for host in (*SPELLED, *NAMES)), *URLS]
BAD += [f"https://[{address}]/" if ":" in address else f"https://{address}/" for address in PRIVATE]


async def refusals(server: A2AServer, urls: Sequence[str]) -> AsyncIterator[tuple[str, Reply]]:
    task = await send(server, sending("ask"))
    for url in urls:
        config = {"taskId": task["id"], "url": url}
        yield url, await call(server.app, "CreateTaskPushNotificationConfig", config)
        yield url, await call(server.app, "SendMessage", sending("go", {"url": url}))
    assert (await call(server.app, "ListTaskPushNotificationConfigs", {"taskId": task["id"]})).json["result"] == {
        "configs": []
    }


async def test_every_bad_address_is_refused_when_the_config_is_created() -> None:
    """The error code is -32602, and the response is shorter than 5000 bytes, even for a long URL."""
    async with agent() as server:
        async for url, reply in refusals(server, BAD):
            assert reply.json.get("error", {}).get("code") == -32602, url[:100]
            assert len(reply.body) < 5000


@pytest.mark.parametrize(
    "more",
    [
        {"token": "a\r\nX-Evil: 1"},
        {"token": "ünprintable"},
        {"authentication": {"scheme": "Bearer", "credentials": "a\nb"}},
        {"authentication": {"scheme": "Bearer x\r\nX-Evil:", "credentials": "a"}},
        {"authentication": {"scheme": "", "credentials": "a"}},
        {"id": "a/b"},
        {"id": "x" * 65},
        {"id": "a\nb"},
    ],
    ids=str,
)
async def test_values_that_can_not_be_sent_are_refused_when_the_config_is_created(
    server: A2AServer, more: dict[str, Any]
) -> None:
    config = {"url": "https://hook.example/", **more}
    reply = await call(server.app, "SendMessage", sending("go", config))
    assert reply.json["error"]["code"] == -32602
    assert "X-Evil" not in str(reply.headers)


async def test_a_task_has_at_most_fifty_configs(server: A2AServer) -> None:
    task = await send(server, sending("ask"))
    codes = []
    for number in range(51):
        config = {"taskId": task["id"], "id": f"c{number}", "url": "https://hook.example/"}
        reply = await call(server.app, "CreateTaskPushNotificationConfig", config)
        codes.append(reply.json.get("error", {}).get("code"))
    assert codes == [None] * 50 + [-32602]
