"""The client over gRPC: the same operations, errors and streams as over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from keelbolt.auth import APIKeyAuthenticator
from keelbolt.client import A2AClient, A2AConnectionError, Event, Part, Reconnect, Task, TaskState, text_of
from keelbolt.errors import (
    A2ADiscoveryError,
    CredentialsMissing,
    CredentialsRefused,
    InvalidParamsError,
    MissingExtra,
    TaskNotCancelableError,
    TaskNotFoundError,
)
from keelbolt.testing.proxy import Proxy
from tests.integration.client.serving import our_agent

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    async with our_agent(grpc_port=0) as url:
        yield url


@pytest.fixture(params=["1.0", "0.3"])
def spoken(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"bindings": ["GRPC"], "versions": [request.param]}


async def test_every_operation(url: str, spoken: dict[str, Any]) -> None:
    async with A2AClient(url, **spoken) as client:
        task = await client.send_message("Hello")
        assert isinstance(task, Task)
        assert text_of(task) == "You said: Hello"
        assert (await client.get_task(task.id, history_length=1)).id == task.id
        assert text_of(await client.send_message("say hi")) == "hi"
        sent = await client.send_message([Part(text="Hi"), Part(raw=b"\x00\xff", filename="x"), Part(data=[1, None])])
        assert isinstance(sent, Task)
        message = (await client.get_task(sent.id)).history[0]
        assert [part.raw or part.text or part.data for part in message.parts] == ["Hi", b"\x00\xff", [1, None]]

        events = [event async for event in client.stream_message("stream 20")]
        assert "".join(event.text for event in events if event.artifact) == "".join(f"{n} " for n in range(20))
        assert all(event.id for event in events)
        assert events[-1].last
        rest = [event async for event in client.subscribe(str(events[0].task_id), after=events[5].id)]
        assert rest == events[6:]

        waiting = await client.send_message("wait", return_immediately=True)
        assert isinstance(waiting, Task)
        config = await client.create_push_config(waiting.id, {"id": "mine", "url": "https://example.com/hook"})
        assert (config.id, config.task_id) == ("mine", waiting.id)
        assert (await client.get_push_config(waiting.id, "mine")).url == "https://example.com/hook"
        assert [each.id for each in await client.list_push_configs(waiting.id)] == ["mine"]
        await client.delete_push_config(waiting.id, "mine")
        assert await client.list_push_configs(waiting.id) == []
        assert (await client.cancel_task(waiting.id)).status.state is TaskState.canceled

        with pytest.raises(TaskNotFoundError) as missing:
            await client.get_task("unknown")
        assert missing.value.task_id == "unknown"
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(task.id)
        with pytest.raises(InvalidParamsError) as wrong:
            await client.send_message({"messageId": "m" * 100_000, "parts": [{"text": "Hi"}]})
        assert wrong.value.violations
        if spoken["versions"] == ["1.0"]:
            assert task.id in [each.id async for each in client.list_tasks(limit=2)]


async def test_a_stream_that_breaks_often_has_every_event_once(url: str, spoken: dict[str, Any]) -> None:
    reconnects: list[Reconnect] = []
    async with A2AClient(url, **spoken) as client:
        text = json.dumps(await client.discover())
        port = (await client._opened().transports())[0].endpoint.url.rpartition(":")[2]
    async with Proxy("127.0.0.1", int(port)) as proxy:
        card = json.loads(text.replace(f":{port}", f":{proxy.port}"))
        events: list[Event] = []
        async with A2AClient(url, card=card, on_reconnect=reconnects.append, **spoken) as client, asyncio.timeout(60):
            async for event in client.stream_message("stream 60 0.01"):
                events.append(event)
                if len(events) in (1, 10, 30):
                    proxy.cut()
    assert len(reconnects) >= 3
    assert not any(event.snapshot for event in events)
    assert "".join(event.text for event in events if event.artifact) == "".join(f"{n} " for n in range(60))


async def test_credentials_are_sent_only_to_trusted_origins(spoken: dict[str, Any]) -> None:
    keys = APIKeyAuthenticator.of({"alices-key-of-some-length": "alice"})
    good, bad = {"X-API-Key": "alices-key-of-some-length"}, {"X-API-Key": "wrong"}
    async with our_agent(grpc_port=0, auth=keys) as url:
        async with A2AClient(url, headers=good, **spoken) as client:
            with pytest.raises(A2ADiscoveryError, match="trusted_origins") as elsewhere:
                await client.send_message("Hello")
        origin = str(elsewhere.value).split("refers to ")[1].split(",")[0]
        async with A2AClient(url, headers=good, trusted_origins=[origin], **spoken) as client:
            assert text_of(await client.send_message("Hello")) == "You said: Hello"
        async with A2AClient(url, headers=bad, trusted_origins=[origin], **spoken) as client:
            with pytest.raises(CredentialsRefused):
                await client.send_message("Hello")
        async with A2AClient(url, **spoken) as client:
            with pytest.raises(CredentialsMissing):
                await client.send_message("Hello")


async def test_nothing_was_sent_to_an_unreachable_agent(url: str) -> None:
    card = {
        "name": "gone",
        "supportedInterfaces": [{"url": "127.0.0.1:9", "protocolBinding": "GRPC", "protocolVersion": "1.0"}],
    }
    async with A2AClient(url, card=card, retry_seconds=0.1) as client:
        with pytest.raises(A2AConnectionError, match=r"127\.0\.0\.1:9") as refused:
            await client.send_message("Hello")
        assert not refused.value.sent


async def test_without_the_extra_grpc_is_skipped(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with A2AClient(url) as client:
        card = await client.discover()
    alone = {**card, "supportedInterfaces": [each for each in card["supportedInterfaces"] if "GRPC" in each.values()]}
    alone.pop("url", None)
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.setattr("keelbolt.protocol.protobuf.extra.find_spec", lambda name: None if name == "grpc" else name)
    async with A2AClient(url, card=card) as client:
        assert text_of(await client.send_message("Hello")) == "You said: Hello"
        assert "GRPC" not in {each.endpoint.binding for each in await client._opened().transports()}
    async with A2AClient(url, card=alone) as client:
        with pytest.raises(MissingExtra, match="keelbolt\\[grpc\\]"):
            await client.send_message("Hello")


async def test_the_error_for_a_card_without_a_supported_interface_lists_its_interfaces(url: str) -> None:
    interfaces = [
        {"url": "https://a", "protocolBinding": "SLIMRPC", "protocolVersion": "1.0"},
        {"url": "https://a", "protocolBinding": "JSONRPC", "protocolVersion": "0.2.5"},
    ]
    async with A2AClient(url, card={"name": "other", "supportedInterfaces": interfaces}) as client:
        with pytest.raises(A2ADiscoveryError, match=r"offers SLIMRPC 1\.0, JSONRPC 0\.2\.5; this client supports"):
            await client.send_message("Hello")
