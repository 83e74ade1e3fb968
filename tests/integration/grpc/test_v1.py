"""Every operation of 1.0 by the official stubs and the official client."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import httpx
import pytest

from keelbolt.grpc.library import aio
from tests.integration.grpc.speaking import PB, plain, refused, talking
from tests.integration.server.actor import TOKEN, agent
from tests.integration.server.serving import served

CLIENT: Any = import_module("a2a.client")
ERRORS: Any = import_module("a2a.utils.errors")
HOOK = "https://93.184.216.34/hook"


async def test_send_get_and_list() -> None:
    async with talking() as talk:
        task = await talk.send("echo ä\u2028\U0001f600", metadata=[("a2a-version", "1.0")])
        assert task.status.state == PB.TASK_STATE_COMPLETED
        assert task.artifacts[0].parts[0].text == "ä\u2028\U0001f600"
        got = await talk.stub.GetTask(PB.GetTaskRequest(id=task.id))
        assert got == task
        assert not (await talk.stub.GetTask(PB.GetTaskRequest(id=task.id, history_length=0))).history
        other = await talk.send("echo again", context_id=task.context_id)
        page = await talk.stub.ListTasks(PB.ListTasksRequest(context_id=task.context_id, page_size=1))
        assert [one.id for one in page.tasks] == [other.id]
        assert (page.total_size, page.page_size, bool(page.next_page_token)) == (2, 1, True)
        rest = await talk.stub.ListTasks(
            PB.ListTasksRequest(context_id=task.context_id, page_size=1, page_token=page.next_page_token)
        )
        assert [one.id for one in rest.tasks] == [task.id]
        assert not rest.next_page_token


async def test_a_response_is_the_same_as_by_json_rpc() -> None:
    async with talking() as talk:
        sent = await talk.send("file", metadata=[("a2a-version", "1.0")])
        got = await talk.stub.GetTask(PB.GetTaskRequest(id=sent.id))
        assert plain(got) == await talk.json("GetTask", {"id": sent.id})
        assert got.artifacts[0].parts[0].raw == b"\x00\xff"
        assert plain(got.artifacts[1].parts[0].data) == {"a": [1.0, None, "ä"]}


async def test_sent_content_is_stored_unchanged() -> None:
    """Metadata, files, data and references are stored byte for byte, as a JSON-RPC client sees them."""
    async with talking() as talk:
        message = PB.Message(
            message_id="all",
            role=PB.ROLE_USER,
            parts=[PB.Part(text="echo", metadata={"k": [1, 2.5, None, {"x": True}]}), PB.Part(data=_value({"n": -7}))],
            metadata={"m": "ü", "big": 2**53},
            extensions=["urn:x"],
            reference_task_ids=["a", "b"],
        )
        task = (await talk.stub.SendMessage(PB.SendMessageRequest(message=message))).task
        [stored] = (await talk.json("GetTask", {"id": task.id}))["history"]
        assert stored["parts"] == [
            {"text": "echo", "metadata": {"k": [1, 2.5, None, {"x": True}]}},
            {"data": {"n": -7}},
        ]
        assert stored["metadata"] == {"m": "ü", "big": 2**53}
        assert (stored["extensions"], stored["referenceTaskIds"]) == (["urn:x"], ["a", "b"])
        assert type(stored["metadata"]["big"]) is int


def _value(value: dict[str, int]) -> Any:
    found = import_module("google.protobuf.struct_pb2").Value()
    found.struct_value.update(value)
    return found


async def test_large_numbers_stay_exact_for_readers_of_json() -> None:
    async with talking() as talk:
        message = {"messageId": "n", "role": "ROLE_USER", "parts": [{"text": "echo"}], "metadata": {"n": 2**60 + 1}}
        task = (await talk.json("SendMessage", {"message": message}))["task"]
        assert (await talk.json("GetTask", {"id": task["id"]}))["history"][0]["metadata"]["n"] == 2**60 + 1
        seen = await talk.stub.GetTask(PB.GetTaskRequest(id=task["id"]))
        assert seen.history[0].metadata["n"] == float(2**60)


async def test_sending_again_is_the_same_task() -> None:
    async with talking() as talk:
        key = (("idempotency-key", "k"),)
        first = await talk.send("echo once", message_id="same", metadata=key)
        by_json = {"messageId": "same", "role": "ROLE_USER", "parts": [{"text": "echo once"}]}
        assert (await talk.json("SendMessage", {"message": by_json}, headers=key))["task"]["id"] == first.id
        assert (await talk.send("echo once", message_id="same", metadata=key)).id == first.id
        with pytest.raises(aio.AioRpcError) as refusal:
            await talk.send("echo twice", message_id="same", metadata=key)
        assert refusal.value.code().name == "ALREADY_EXISTS"
        with pytest.raises(aio.AioRpcError) as refusal:
            await talk.send("echo once", metadata=(("idempotency-key", "x" * 256),))
        assert refusal.value.code().name == "INVALID_ARGUMENT"


async def test_a_direct_message() -> None:
    async with talking() as talk:
        answer = await talk.stub.SendMessage(talk.request("direct hello"))
        assert answer.message.parts[0].text == "hello"


async def test_a_conversation_and_a_cancel() -> None:
    async with talking() as talk:
        task = await talk.send("ask")
        assert task.status.state == PB.TASK_STATE_INPUT_REQUIRED
        done = await talk.send("Ann", task_id=task.id)
        assert (done.id, done.status.state) == (task.id, PB.TASK_STATE_COMPLETED)
        waiting = await talk.send("wait", now=True)
        canceled = await talk.stub.CancelTask(PB.CancelTaskRequest(id=waiting.id))
        assert canceled.status.state == PB.TASK_STATE_CANCELED
        assert (
            await refused(talk.stub.CancelTask(PB.CancelTaskRequest(id=waiting.id)))
        ).reason == "TASK_NOT_CANCELABLE"


async def test_push_configs() -> None:
    async with talking() as talk:
        task = await talk.send("wait", now=True)
        config = PB.TaskPushNotificationConfig(
            task_id=task.id, id="c1", url=HOOK, authentication=PB.AuthenticationInfo(scheme="Bearer")
        )
        created = await talk.stub.CreateTaskPushNotificationConfig(config)
        assert (created.id, created.task_id, created.url) == ("c1", task.id, HOOK)
        named = {"task_id": task.id, "id": "c1"}
        got = await talk.stub.GetTaskPushNotificationConfig(PB.GetTaskPushNotificationConfigRequest(**named))
        assert got.url == HOOK
        listed = PB.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        assert [one.id for one in (await talk.stub.ListTaskPushNotificationConfigs(listed)).configs] == ["c1"]
        await talk.stub.DeleteTaskPushNotificationConfig(PB.DeleteTaskPushNotificationConfigRequest(**named))
        assert not (await talk.stub.ListTaskPushNotificationConfigs(listed)).configs


async def test_the_extended_card() -> None:
    async with talking(extended=True) as talk:
        known = [("authorization", f"Bearer {TOKEN}")]
        card = await talk.stub.GetExtendedAgentCard(PB.GetExtendedAgentCardRequest(), metadata=known)
        assert card.description == "Does as asked, for you"
        assert [one.protocol_binding for one in card.supported_interfaces] == ["GRPC", "GRPC"]
        assert talk.server.routes.grpc is not None
        assert card.supported_interfaces[0].url == str(talk.server.routes.grpc.at)
    async with talking(extended=False) as talk:
        failed = await refused(talk.stub.GetExtendedAgentCard(PB.GetExtendedAgentCardRequest()))
        assert (failed.code, failed.reason) == ("FAILED_PRECONDITION", "UNSUPPORTED_OPERATION")


async def test_the_official_client_selects_grpc() -> None:
    """From the card to the stream: the SDK chooses gRPC, sends, streams, gets, lists, cancels and subscribes."""
    async with served(agent(grpc_port=0)) as url, httpx.AsyncClient() as http:
        config = CLIENT.ClientConfig(
            httpx_client=http, grpc_channel_factory=aio.insecure_channel, supported_protocol_bindings=["GRPC"]
        )
        client = await CLIENT.ClientFactory(config).create_from_url(url)

        def request(text: str, message_id: str) -> Any:
            message = PB.Message(message_id=message_id, role=PB.ROLE_USER, parts=[PB.Part(text=text)])
            return PB.SendMessageRequest(message=message)

        events = [event async for event in client.send_message(request("count 3", "m1"))]
        kinds = [event.WhichOneof("payload") for event in events]
        assert kinds[0] == "task"
        assert kinds.count("artifact_update") == 3
        assert events[-1].status_update.status.state == PB.TASK_STATE_COMPLETED
        got = await client.get_task(PB.GetTaskRequest(id=events[0].task.id))
        assert [part.text for part in got.artifacts[0].parts] == ["0 ", "1 ", "2 "]
        assert len((await client.list_tasks(PB.ListTasksRequest())).tasks) == 1
        with pytest.raises(ERRORS.TaskNotFoundError):
            await client.get_task(PB.GetTaskRequest(id="unknown"))
        with pytest.raises(ERRORS.TaskNotCancelableError):
            await client.cancel_task(PB.CancelTaskRequest(id=got.id))
        await client.close()
