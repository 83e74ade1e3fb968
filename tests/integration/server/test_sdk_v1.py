"""The official SDK's client of 1.0 against our server, over JSON-RPC and REST; every response is also read strictly."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.server.actor import TOKEN, agent
from tests.integration.server.people import authenticator, bearer
from tests.integration.server.recorded import ANSWERS, Recorder
from tests.integration.server.serving import served

PB: Any = import_module("a2a.types.a2a_pb2")
CLIENT: Any = import_module("a2a.client")
ERRORS: Any = import_module("a2a.utils.errors")

BINDINGS = ("JSONRPC", "HTTP+JSON")
SILENCE = os.environ.get("SILENCE_SECONDS", "7")  # longer than the 5 s that the SDK waits for a byte


class Sdk:
    """Clients of one agent, and all their responses."""

    def __init__(self, url: str, binding: str) -> None:
        self.url = url
        self.binding = binding
        self.recorder = Recorder()
        self.http = httpx.AsyncClient(transport=self.recorder, timeout=20)
        self.sent = 0

    async def client(self, *, streaming: bool = True, polling: bool = False) -> Any:
        config = CLIENT.ClientConfig(
            httpx_client=self.http,
            streaming=streaming,
            polling=polling,
            supported_protocol_bindings=[self.binding],
        )
        return await CLIENT.ClientFactory(config).create_from_url(self.url)

    def message(self, text: str, **more: str) -> Any:
        self.sent += 1
        message = PB.Message(message_id=f"m{self.sent}", role=PB.ROLE_USER, parts=[PB.Part(text=text)], **more)
        return PB.SendMessageRequest(message=message)

    async def send(self, text: str, **more: str) -> Any:
        """Send the text; return the only event."""
        client = await self.client(streaming=False)
        [event] = [event async for event in client.send_message(self.message(text, **more))]
        return event


@contextlib.asynccontextmanager
async def _sdk(binding: str, **more: Any) -> AsyncIterator[Sdk]:
    async with served(agent(**more)) as url:
        sdk = Sdk(url, binding)
        try:
            yield sdk
        finally:
            await sdk.http.aclose()
        assert {exchange.check() for exchange in sdk.recorder.exchanges} <= {None, *ANSWERS}


@pytest.mark.parametrize("binding", BINDINGS)
async def test_send_and_get(binding: str) -> None:
    async with _sdk(binding) as sdk:
        sent = (await sdk.send("echo ä\u2028\U0001f600")).task
        assert sent.status.state == PB.TASK_STATE_COMPLETED
        assert sent.artifacts[0].parts[0].text == "ä\u2028\U0001f600"
        client = await sdk.client()
        got = await client.get_task(PB.GetTaskRequest(id=sent.id, history_length=1))
        assert got.artifacts == sent.artifacts
        assert [message.message_id for message in got.history] == ["m1"]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_direct_message(binding: str) -> None:
    async with _sdk(binding) as sdk:
        event = await sdk.send("direct hello")
        assert event.WhichOneof("payload") == "message"
        assert event.message.parts[0].text == "hello"


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_quiet_stream(binding: str) -> None:
    """A client with the SDK's timeouts follows a task that is silent for longer."""
    async with served(agent()) as url:
        config = CLIENT.ClientConfig(supported_protocol_bindings=[binding])
        client = await CLIENT.ClientFactory(config).create_from_url(url)
        request = PB.SendMessageRequest(
            message=PB.Message(message_id="m", role=PB.ROLE_USER, parts=[PB.Part(text=f"quiet {SILENCE}")])
        )
        events = [event async for event in client.send_message(request)]
        assert events[-1].status_update.status.state == PB.TASK_STATE_COMPLETED
        await client.close()


@pytest.mark.parametrize("binding", BINDINGS)
async def test_cancel_of_a_worker_that_ignores_the_stop(binding: str) -> None:
    """A client with the SDK's timeouts gets the canceled task, whatever the worker does."""
    async with served(agent()) as url:
        config = CLIENT.ClientConfig(supported_protocol_bindings=[binding], streaming=False, polling=True)
        client = await CLIENT.ClientFactory(config).create_from_url(url)
        message = PB.Message(message_id="m", role=PB.ROLE_USER, parts=[PB.Part(text="stubborn")])
        [sent] = [event async for event in client.send_message(PB.SendMessageRequest(message=message))]
        canceled = await client.cancel_task(PB.CancelTaskRequest(id=sent.task.id))
        assert canceled.status.state == PB.TASK_STATE_CANCELED
        await client.close()


@pytest.mark.parametrize("binding", BINDINGS)
async def test_stream(binding: str) -> None:
    """The stream has the task first, then every chunk in order, and the end."""
    async with _sdk(binding) as sdk:
        client = await sdk.client()
        events = [event async for event in client.send_message(sdk.message("count 20"))]
        kinds = [event.WhichOneof("payload") for event in events]
        assert kinds[0] == "task"
        assert kinds.count("artifact_update") == 20
        chunks = [event.artifact_update for event in events if event.HasField("artifact_update")]
        assert "".join(chunk.artifact.parts[0].text for chunk in chunks) == "".join(f"{i} " for i in range(20))
        assert [chunk.last_chunk for chunk in chunks].index(True) == 19
        assert events[-1].status_update.status.state == PB.TASK_STATE_COMPLETED


@pytest.mark.parametrize("binding", BINDINGS)
async def test_files_and_data(binding: str) -> None:
    async with _sdk(binding) as sdk:
        task = (await sdk.send("file")).task
        parts = [part for artifact in task.artifacts for part in artifact.parts]
        assert parts[0].raw == b"\x00\xff"
        assert (parts[0].filename, parts[0].media_type) == ("x.bin", "application/octet-stream")
        assert parts[1].data.struct_value["a"][2] == "ä"


@pytest.mark.parametrize("binding", BINDINGS)
async def test_continue(binding: str) -> None:
    async with _sdk(binding) as sdk:
        asked = (await sdk.send("ask")).task
        assert asked.status.state == PB.TASK_STATE_INPUT_REQUIRED
        done = (await sdk.send("Ada", task_id=asked.id)).task
        assert (done.id, done.context_id) == (asked.id, asked.context_id)
        assert done.artifacts[0].parts[0].text == "turn 2: Ada"


@pytest.mark.parametrize("binding", BINDINGS)
async def test_list(binding: str) -> None:
    async with _sdk(binding) as sdk:
        ids = [(await sdk.send(f"echo {i}")).task.id for i in range(5)]
        client = await sdk.client()
        first = await client.list_tasks(PB.ListTasksRequest(page_size=3, include_artifacts=True))
        assert [task.id for task in first.tasks] == ids[:1:-1]
        assert (first.total_size, first.page_size) == (5, 3)
        assert first.tasks[0].artifacts[0].parts[0].text == "4"
        second = await client.list_tasks(PB.ListTasksRequest(page_size=3, page_token=first.next_page_token))
        assert [task.id for task in second.tasks] == ids[1::-1]
        assert second.next_page_token == ""
        assert not second.tasks[0].artifacts
        states = PB.ListTasksRequest(status=PB.TASK_STATE_WORKING)
        assert not (await client.list_tasks(states)).tasks


@pytest.mark.parametrize("binding", BINDINGS)
async def test_cancel(binding: str) -> None:
    async with _sdk(binding) as sdk:
        client = await sdk.client(streaming=False, polling=True)
        [event] = [event async for event in client.send_message(sdk.message("wait"))]
        canceled = await client.cancel_task(PB.CancelTaskRequest(id=event.task.id))
        assert canceled.status.state == PB.TASK_STATE_CANCELED
        with pytest.raises(ERRORS.TaskNotCancelableError):
            await client.cancel_task(PB.CancelTaskRequest(id=event.task.id))


@pytest.mark.parametrize("binding", BINDINGS)
async def test_subscribe(binding: str, tmp_path: Path) -> None:
    """A second reader gets the current task and the rest; an ended task can't be subscribed to."""
    async with _sdk(binding) as sdk:
        client = await sdk.client(polling=True)
        quiet = await sdk.client(streaming=False, polling=True)
        [event] = [event async for event in quiet.send_message(sdk.message(f"until {tmp_path}/go"))]
        events = []
        async for item in client.subscribe(PB.SubscribeToTaskRequest(id=event.task.id)):
            events.append(item)
            (tmp_path / "go").touch()
        assert events[0].task.status.state == PB.TASK_STATE_WORKING
        assert events[-1].status_update.status.state == PB.TASK_STATE_COMPLETED
        with pytest.raises(ERRORS.UnsupportedOperationError):
            [item async for item in client.subscribe(PB.SubscribeToTaskRequest(id=event.task.id))]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_push_configs(binding: str) -> None:
    """Push configs are created, read, listed and deleted; secrets are not returned."""
    async with _sdk(binding) as sdk:
        task = (await sdk.send("ask")).task
        client = await sdk.client()
        auth = PB.AuthenticationInfo(scheme="Bearer", credentials="secret")
        given = PB.TaskPushNotificationConfig(task_id=task.id, url="https://example.com/hook", authentication=auth)
        made = await client.create_task_push_notification_config(given)
        assert made.id
        one = PB.GetTaskPushNotificationConfigRequest(task_id=task.id, id=made.id)
        got = await client.get_task_push_notification_config(one)
        assert (got.url, got.authentication.scheme, got.authentication.credentials) == (given.url, "Bearer", "")
        every = PB.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        assert [config.id for config in (await client.list_task_push_notification_configs(every)).configs] == [made.id]
        gone = PB.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=made.id)
        await client.delete_task_push_notification_config(gone)
        await client.delete_task_push_notification_config(gone)
        assert not (await client.list_task_push_notification_configs(every)).configs
        with pytest.raises(ERRORS.TaskNotFoundError):
            await client.get_task_push_notification_config(one)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_extended_card(binding: str) -> None:
    async with _sdk(binding, extended=True) as sdk:
        sdk.http.headers["authorization"] = f"Bearer {TOKEN}"
        card = await (await sdk.client()).get_extended_agent_card(PB.GetExtendedAgentCardRequest())
        assert card.description == "Does as asked, for you"


@pytest.mark.parametrize("binding", BINDINGS)
async def test_errors(binding: str) -> None:
    """Every error is the SDK's own class for it, also before a stream."""
    async with _sdk(binding) as sdk:
        client = await sdk.client()
        with pytest.raises(ERRORS.TaskNotFoundError):
            await client.get_task(PB.GetTaskRequest(id="nowhere"))
        with pytest.raises(ERRORS.TaskNotFoundError):
            await client.cancel_task(PB.CancelTaskRequest(id="nowhere"))
        with pytest.raises(ERRORS.TaskNotFoundError):
            [item async for item in client.subscribe(PB.SubscribeToTaskRequest(id="nowhere"))]
        with pytest.raises(ERRORS.TaskNotFoundError):
            await sdk.send("echo", task_id="nowhere")
        with pytest.raises(ERRORS.InvalidParamsError):
            await client.list_tasks(PB.ListTasksRequest(page_size=101))
        done = (await sdk.send("echo over")).task
        with pytest.raises(ERRORS.UnsupportedOperationError):
            await sdk.send("more", task_id=done.id)
        request = sdk.message("echo")
        request.message.parts[0].media_type = "video/mp4"
        with pytest.raises(ERRORS.ContentTypeNotSupportedError):
            [event async for event in client.send_message(request)]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_operations_that_the_card_does_not_declare(binding: str) -> None:
    async with _sdk(binding, push=False, extended=False) as sdk:
        task = (await sdk.send("ask")).task
        client = await sdk.client()
        given = PB.TaskPushNotificationConfig(task_id=task.id, url="https://example.com/hook")
        with pytest.raises(ERRORS.PushNotificationNotSupportedError):
            await client.create_task_push_notification_config(given)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_repeated_sends(binding: str) -> None:
    """An anonymous repeat is a new task, one with a key is the same, and a key with another message is an error."""
    async with _sdk(binding) as sdk:
        client = await sdk.client(streaming=False)

        async def send(text: str) -> str:
            message = PB.Message(message_id="msg-1", role=PB.ROLE_USER, parts=[PB.Part(text=text)])
            [event] = [event async for event in client.send_message(PB.SendMessageRequest(message=message))]
            return str(event.task.id)

        assert await send("echo once") != await send("echo once")
        sdk.http.headers["Idempotency-Key"] = "k"
        assert await send("echo once") == await send("echo once")
        with pytest.raises(CLIENT.A2AClientError, match=r"Idempotency-Key|409"):
            await send("echo twice")


@pytest.mark.parametrize("binding", BINDINGS)
async def test_repeated_sends_of_an_authenticated_caller(binding: str) -> None:
    """The same message is one task; the same id with another text is another task."""
    async with _sdk(binding, auth=authenticator()) as sdk:
        sdk.http.headers.update(dict(bearer("ada")))
        client = await sdk.client(streaming=False)

        async def send(text: str) -> str:
            message = PB.Message(message_id="msg-1", role=PB.ROLE_USER, parts=[PB.Part(text=text)])
            [event] = [event async for event in client.send_message(PB.SendMessageRequest(message=message))]
            return str(event.task.id)

        first = await send("echo once")
        assert await send("echo once") == first
        assert await send("echo twice") != first
