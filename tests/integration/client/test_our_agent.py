"""The client and our server: every operation, over both bindings, in both versions."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from keelbolt.auth import APIKeyAuthenticator
from keelbolt.client import (
    A2AClient,
    Message,
    SyncA2AClient,
    Task,
    TaskNotFoundError,
    TaskState,
    text_of,
)
from keelbolt.errors import (
    CardSignatureError,
    CredentialsMissing,
    CredentialsRefused,
    InvalidParamsError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.protocol.signatures import CardKey
from keelbolt.server.settings import ServerSettings
from tests.integration.client.serving import CARD, COMBINATIONS, our_agent

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", params=COMBINATIONS, ids="-".join)
def spoken(request: pytest.FixtureRequest) -> dict[str, Any]:
    binding, version = request.param
    return {"bindings": [binding], "versions": [version]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(spoken: dict[str, Any]) -> AsyncIterator[A2AClient]:
    async with our_agent() as url, A2AClient(url, **spoken) as client:
        yield client


async def test_send_get_and_list(client: A2AClient) -> None:
    task = await client.send_message("Hello")
    assert isinstance(task, Task)
    assert (task.status.state, text_of(task)) == (TaskState.completed, "You said: Hello")
    again = await client.get_task(task.id)
    assert again.status == task.status
    assert len((await client.get_task(task.id, history_length=1)).history) == 1

    others = set()
    for _ in range(4):
        other = await client.send_message("More", return_immediately=True, context_id=task.context_id)
        assert isinstance(other, Task)
        others.add(other.id)
    page = await client.list_tasks(task.context_id, limit=2)
    assert len(page.tasks) == 2
    listed = [each.id async for each in client.list_tasks(task.context_id, limit=2)]
    assert len(listed) == len(set(listed))
    assert set(listed) <= others | {task.id}
    if client._bindings == ["HTTP+JSON"] and client._versions == ["0.3"]:
        assert len(listed) == 2  # 0.3 has no pages
    else:
        assert set(listed) == others | {task.id}


async def test_a_message_instead_of_a_task(client: A2AClient) -> None:
    answer = await client.send_message("say Hi")
    assert isinstance(answer, Message)
    assert text_of(answer) == "Hi"


async def test_a_message_in_the_form_of_0_3(client: A2AClient) -> None:
    message = {"role": "user", "parts": [{"type": "text", "text": "Old"}]}
    answer = await client.send_message(message, metadata={"skillId": "echo"}, context_id="here")
    assert isinstance(answer, Task)
    assert (answer.context_id, text_of(answer)) == ("here", "You said: Old")


async def test_a_stream_has_every_event_once_and_ends(client: A2AClient) -> None:
    events = [event async for event in client.stream_message("stream 20")]
    assert events[0].task is not None
    assert not any(event.snapshot for event in events)
    assert "".join(event.text for event in events if event.artifact) == "".join(f"{n} " for n in range(20))
    ids = [int(event.id or 0) for event in events]
    assert ids == sorted(set(ids))
    assert events[-1].last
    assert events[-1].state is TaskState.completed

    after = events[10].id
    rest = [event async for event in client.subscribe(str(events[0].task_id), after=after)]
    assert [event.id for event in rest] == [event.id for event in events[11:]]
    assert [event async for event in client.subscribe(str(events[0].task_id), after=events[-1].id)] == []


async def test_a_question_ends_the_stream_and_is_answered(client: A2AClient) -> None:
    asked = [event async for event in client.stream_message("ask me")]
    assert asked[-1].state is TaskState.input_required
    assert asked[-1].text == "Which one?"
    answered = [event async for event in client.stream_message("the blue one", task_id=asked[-1].task_id)]
    assert answered[-1].state is TaskState.completed
    assert answered[-1].task_id == asked[-1].task_id


async def test_cancel(client: A2AClient) -> None:
    task = await client.send_message("wait", return_immediately=True)
    assert isinstance(task, Task)
    events = client.subscribe(task.id)
    first = await anext(events)
    assert first.snapshot
    assert first.task is not None
    canceled = await client.cancel_task(task.id)
    assert canceled.status.state is TaskState.canceled
    assert [event.state async for event in events][-1] is TaskState.canceled
    done = await client.send_message("Hello")
    assert isinstance(done, Task)
    with pytest.raises(TaskNotCancelableError) as refused:
        await client.cancel_task(done.id)
    assert refused.value.task_id == done.id
    [shown] = [event async for event in client.subscribe(done.id)]
    assert shown.snapshot
    assert shown.last


async def test_push_configs(client: A2AClient) -> None:
    task = await client.send_message("wait", return_immediately=True)
    assert isinstance(task, Task)
    made = await client.create_push_config(task.id, {"id": "mine", "url": "https://example.com/hook"})
    assert (made.id, made.task_id, made.url) == ("mine", task.id, "https://example.com/hook")
    assert (await client.get_push_config(task.id, "mine")).url == made.url
    assert [config.id for config in await client.list_push_configs(task.id)] == ["mine"]
    await client.delete_push_config(task.id, "mine")
    assert await client.list_push_configs(task.id) == []
    await client.cancel_task(task.id)


async def test_errors_keep_their_class(client: A2AClient) -> None:
    with pytest.raises(TaskNotFoundError) as missing:
        await client.get_task("unknown")
    assert missing.value.task_id == "unknown"
    with pytest.raises(UnsupportedOperationError):
        await client.get_extended_card()
    with pytest.raises(InvalidParamsError):
        await client.send_message([])
    for call in (  # half of a character
        client.get_task("\ud800"),
        client.cancel_task("\ud800"),
        client.send_message("\ud800"),
        client.send_message("x", context_id="\ud800"),
        anext(aiter(client.stream_message("\ud800"))),
    ):
        with pytest.raises(InvalidParamsError):
            await call
    failed = await client.send_message("fail")
    assert isinstance(failed, Task)
    assert failed.status.state is TaskState.failed


async def test_credentials_and_the_extended_card(spoken: dict[str, Any]) -> None:
    keys = APIKeyAuthenticator.of({"alices-key-of-some-length": "alice"})
    card = AgentCardConfig(
        name="Known", description="", capabilities=CapabilitiesConfig(streaming=True, extended_agent_card=True)
    )

    def extended(_caller: object) -> AgentCardConfig:
        return card.model_copy(update={"description": "for those we know"})

    async with our_agent(card=card, auth=keys, extended_card=extended) as url:
        async with A2AClient(url, headers={"X-API-Key": "alices-key-of-some-length"}, **spoken) as client:
            assert text_of(await client.send_message("Hi")) == "You said: Hi"
            assert (await client.get_extended_card())["description"] == "for those we know"
            assert [event async for event in client.stream_message("Hi")][-1].last
        async with A2AClient(url, **spoken) as client:
            with pytest.raises(CredentialsMissing):
                await client.send_message("Hi")
        async with A2AClient(url, headers={"X-API-Key": "wrong"}, **spoken) as client:
            with pytest.raises(CredentialsRefused):
                await anext(client.stream_message("Hi"))


async def test_tenants(client: A2AClient) -> None:
    """In 1.0 every operation can name a tenant; another tenant can't see the task."""
    if client._versions == ["0.3"]:
        return
    async with A2AClient(client._url, bindings=client._bindings, versions=["1.0"], tenant="acme") as acme:
        task = await acme.send_message("Hi")
        assert isinstance(task, Task)
        assert (await acme.get_task(task.id)).id == task.id
        assert [each.id async for each in acme.list_tasks()] == [task.id]
        streamed = [event async for event in acme.stream_message("stream 2")]
        assert streamed[-1].last
    with pytest.raises(TaskNotFoundError):
        await client.get_task(task.id)


async def test_lists_are_filtered(client: A2AClient) -> None:
    began = datetime.now(UTC)
    task = await client.send_message("Hi", context_id="filtered")
    assert isinstance(task, Task)
    await client.send_message("fail", context_id="filtered")
    done = [each async for each in client.list_tasks("filtered", status="completed", status_timestamp_after=began)]
    assert [each.id for each in done] == [task.id]
    assert [
        each async for each in client.list_tasks("filtered", status_timestamp_after=began + timedelta(days=1))
    ] == []


async def test_the_interface_follows_the_card() -> None:
    async with our_agent(card=CARD.model_copy(update={"protocol": "http+json"})) as url, A2AClient(url) as client:
        await client.send_message("Hi")
        chosen = (await client._opened().transports())[0].endpoint
        assert (chosen.binding, chosen.version) == ("HTTP+JSON", "1.0")


async def test_a_card_is_revalidated_by_its_etag() -> None:
    now = 0.0
    async with our_agent() as url, A2AClient(url, card_ttl=10, clock=lambda: now) as client:
        first = await client.agent_card
        assert await client.agent_card is first
        now = 11.0
        assert await client.agent_card is first  # 304: the same object, revalidated
        assert client._opened().fetcher._at == 11.0
        assert await client.discover(refresh=True) == first


async def test_a_signed_card() -> None:
    key, other = CardKey.generate("k1"), CardKey.generate("k1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = ServerSettings.of({}, url=f"http://127.0.0.1:{port}")
    async with our_agent(card_key=key, settings=settings, port=port) as url:
        async with A2AClient(url, card_keys=key.jwks()) as client:
            assert text_of(await client.send_message("Hi")) == "You said: Hi"
        async with A2AClient(url, card_keys=f"{url}/.well-known/jwks.json") as client:
            assert (await client.discover())["signatures"]
        async with A2AClient(url, card_keys=other.jwks()) as client:
            with pytest.raises(CardSignatureError):
                await client.send_message("Hi")
    async with our_agent() as url, A2AClient(url, card_keys=key.jwks()) as client:
        with pytest.raises(CardSignatureError):
            await client.discover()


async def test_an_agent_without_streaming_returns_its_response() -> None:
    card = CARD.model_copy(update={"capabilities": CapabilitiesConfig()})
    async with our_agent(card=card) as url, A2AClient(url) as client:
        [event] = [event async for event in client.stream_message("Hi")]
        assert event.last
        assert event.text == "You said: Hi"


async def test_the_blocking_client() -> None:
    def use(url: str) -> None:
        with SyncA2AClient(url) as client:
            task = client.send_message("Hello")
            assert isinstance(task, Task)
            assert client.get_task(task.id).id == task.id
            assert client.agent_card["name"] == "Echo"
            texts = [event.text for event in client.stream_message("stream 5") if event.artifact]
            assert texts == ["0 ", "1 ", "2 ", "3 ", "4 "]
            for event in client.stream_message("stream 100 0.01"):  # the reader leaves early
                if event.artifact:
                    break
            assert len(list(client.list_tasks(limit=1))) == 3
            assert len(client.list_tasks_page(limit=1).tasks) == 1
            with pytest.raises(TaskNotFoundError):
                client.cancel_task("unknown")

    async with our_agent() as url:
        await asyncio.to_thread(use, url)
