"""Every operation of 0.3 by its official stubs, in the same channel as 1.0."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from keelbolt.grpc.library import aio
from tests.integration.grpc.speaking import OLD, PB, refused, talking
from tests.integration.server.actor import TOKEN

HOOK = "https://93.184.216.34/hook"
CLIENT: Any = import_module("a2a.client")
ERRORS: Any = import_module("a2a.utils.errors")
BLOCKING = OLD.SendMessageConfiguration(blocking=True)
AT_ONCE = OLD.SendMessageConfiguration(blocking=False)


async def test_send_and_get() -> None:
    async with talking() as talk:
        task = (await talk.old.SendMessage(talk.old_request("echo ä", BLOCKING))).task
        assert task.status.state == OLD.TASK_STATE_COMPLETED
        assert task.artifacts[0].parts[0].text == "ä"
        assert task.history[0].content[0].text == "echo ä"
        assert await talk.old.GetTask(OLD.GetTaskRequest(name=f"tasks/{task.id}")) == task
        # In this channel the other version sees the same task in its own form.
        assert (await talk.stub.GetTask(PB.GetTaskRequest(id=task.id))).history[0].parts[0].text == "echo ä"


async def test_files_and_data() -> None:
    async with talking() as talk:
        task = (await talk.old.SendMessage(talk.old_request("file"))).task
        file = task.artifacts[0].parts[0].file
        # The official 0.3 puts the base64 text into the field of bytes, and reads it as text.
        assert (file.file_with_bytes, file.name, file.mime_type) == (b"AP8=", "x.bin", "application/octet-stream")
        assert task.artifacts[1].parts[0].data.data["a"][0] == 1


async def test_a_non_blocking_send_and_a_cancel() -> None:
    async with talking() as talk:
        task = (await talk.old.SendMessage(talk.old_request("wait", AT_ONCE))).task
        assert task.status.state in {OLD.TASK_STATE_SUBMITTED, OLD.TASK_STATE_WORKING}
        canceled = await talk.old.CancelTask(OLD.CancelTaskRequest(name=f"tasks/{task.id}"))
        assert canceled.status.state == OLD.TASK_STATE_CANCELLED
        again = await refused(talk.old.CancelTask(OLD.CancelTaskRequest(name=f"tasks/{task.id}")))
        assert (again.code, again.reason) == ("FAILED_PRECONDITION", "TASK_NOT_CANCELABLE")


async def test_a_stream_has_final() -> None:
    async with talking() as talk:
        events = [event async for event in talk.old.SendStreamingMessage(talk.old_request("count 2"))]
        assert events[0].WhichOneof("payload") == "task"
        assert [one.artifact_update.artifact.parts[0].text for one in events if one.HasField("artifact_update")] == [
            "0 ",
            "1 ",
        ]
        assert events[-1].status_update.final
        assert events[-1].status_update.status.state == OLD.TASK_STATE_COMPLETED


async def test_subscribe() -> None:
    async with talking() as talk:
        task = (await talk.old.SendMessage(talk.old_request("count 30 0.01", AT_ONCE))).task
        stream = talk.old.TaskSubscription(OLD.TaskSubscriptionRequest(name=f"tasks/{task.id}"))
        events = [event async for event in stream]
        assert events[0].task.id == task.id
        assert events[-1].status_update.final


async def test_push_configs() -> None:
    async with talking() as talk:
        task = (await talk.old.SendMessage(talk.old_request("wait", AT_ONCE))).task
        parent = f"tasks/{task.id}"
        config = OLD.TaskPushNotificationConfig(push_notification_config=OLD.PushNotificationConfig(url=HOOK))
        request = OLD.CreateTaskPushNotificationConfigRequest(parent=parent, config_id="c1", config=config)
        created = await talk.old.CreateTaskPushNotificationConfig(request)
        name = f"{parent}/pushNotificationConfigs/c1"
        assert (created.name, created.push_notification_config.url) == (name, HOOK)
        got = await talk.old.GetTaskPushNotificationConfig(OLD.GetTaskPushNotificationConfigRequest(name=name))
        assert got == created
        listed = OLD.ListTaskPushNotificationConfigRequest(parent=parent)
        assert [one.name for one in (await talk.old.ListTaskPushNotificationConfig(listed)).configs] == [name]
        await talk.old.DeleteTaskPushNotificationConfig(OLD.DeleteTaskPushNotificationConfigRequest(name=name))
        assert not (await talk.old.ListTaskPushNotificationConfig(listed)).configs


async def test_the_card() -> None:
    """The method returns the caller's own card if there is one, else the public one: 0.3 has one method for both."""
    for extended, description in ((True, "Does as asked, for you"), (False, "Does as asked")):
        async with talking(extended=extended) as talk:
            known = [("authorization", f"Bearer {TOKEN}")]
            card = await talk.old.GetAgentCard(OLD.GetAgentCardRequest(), metadata=known)
            assert (card.description, card.protocol_version) == (description, "0.3.0")
            assert card.preferred_transport == "GRPC"
            assert card.url.startswith("http://")


async def test_the_official_client_of_0_3() -> None:
    """The SDK's own transport for agents of 0.3 performs every operation, and names errors correctly."""
    async with talking() as talk:
        assert talk.server.routes.grpc is not None
        where = PB.AgentInterface(url=str(talk.server.routes.grpc.at), protocol_binding="GRPC", protocol_version="0.3")
        can = PB.AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True)
        card = PB.AgentCard(name="A", supported_interfaces=[where], capabilities=can)
        config = CLIENT.ClientConfig(grpc_channel_factory=aio.insecure_channel, supported_protocol_bindings=["GRPC"])
        client = CLIENT.ClientFactory(config).create(card)
        events = [event async for event in client.send_message(talk.request("count 3"))]
        assert [event.WhichOneof("payload") for event in events].count("artifact_update") == 3
        task = events[0].task
        got = await client.get_task(PB.GetTaskRequest(id=task.id))
        assert got.status.state == PB.TASK_STATE_COMPLETED
        with pytest.raises(ERRORS.TaskNotFoundError):
            await client.get_task(PB.GetTaskRequest(id="unknown"))
        with pytest.raises(ERRORS.TaskNotCancelableError):
            await client.cancel_task(PB.CancelTaskRequest(id=task.id))
        created = await client.create_task_push_notification_config(
            PB.TaskPushNotificationConfig(task_id=task.id, id="c1", url=HOOK)
        )
        assert (created.id, created.task_id, created.url) == ("c1", task.id, HOOK)
        listed = PB.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        assert [one.id for one in (await client.list_task_push_notification_configs(listed)).configs] == ["c1"]
        card = await client.get_extended_agent_card(PB.GetExtendedAgentCardRequest())
        assert card.description == "Does as asked"
        await client.close()


async def test_a_missing_task() -> None:
    async with talking() as talk:
        gone = await refused(talk.old.GetTask(OLD.GetTaskRequest(name="tasks/unknown")))
        assert (gone.code, gone.reason) == ("NOT_FOUND", "TASK_NOT_FOUND")
        assert gone.message.startswith("TaskNotFoundError: ")
        unnamed = await refused(talk.old.GetTask(OLD.GetTaskRequest(name="people/unknown")))
        assert (unnamed.code, unnamed.reason) == ("INVALID_ARGUMENT", "INVALID_PARAMS")
