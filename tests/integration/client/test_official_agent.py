"""The client and an agent of the official SDK: both bindings, both versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from keelbolt.client import A2AClient, Event, Task, TaskNotFoundError, TaskState, text_of
from keelbolt.errors import KeelboltError, MethodNotFoundError, TaskNotCancelableError
from keelbolt.testing.proxy import Proxy
from tests.integration.client.serving import COMBINATIONS, official_agent, sdk_agent, serving

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # warnings of the SDK and its dependencies


@pytest.fixture(scope="module", params=COMBINATIONS, ids="-".join)
def spoken(request: pytest.FixtureRequest) -> dict[str, Any]:
    binding, version = request.param
    return {"bindings": [binding], "versions": [version]}


@pytest.fixture
async def client(spoken: dict[str, Any]) -> AsyncIterator[A2AClient]:
    async with official_agent() as url, A2AClient(url, **spoken) as client:
        yield client


async def test_every_operation(client: A2AClient, spoken: dict[str, Any]) -> None:
    assert (await client.discover())["name"] == "Official"
    task = await client.send_message("Hello")
    assert isinstance(task, Task)
    assert (task.status.state, text_of(task)) == (TaskState.completed, "You said: Hello")
    assert (await client.get_task(task.id)).id == task.id

    events = [event async for event in client.stream_message("stream 20")]
    assert "".join(event.text for event in events if event.artifact) == "".join(f"{n} " for n in range(20))
    assert events[-1].state is TaskState.completed
    assert not any(event.snapshot for event in events)

    asked = [event async for event in client.stream_message("ask me")]
    assert asked[-1].state is TaskState.input_required
    answered = await client.send_message("blue", task_id=asked[-1].task_id, context_id=asked[-1].context_id)
    assert isinstance(answered, Task)
    assert answered.status.state is TaskState.completed

    waiting = await client.send_message("wait", return_immediately=True)
    assert isinstance(waiting, Task)
    config = await client.create_push_config(waiting.id, {"id": "mine", "url": "https://example.com/hook"})
    assert config.url == "https://example.com/hook"
    assert (await client.get_push_config(waiting.id, str(config.id))).url == config.url
    assert (await client.cancel_task(waiting.id)).status.state is TaskState.canceled

    with pytest.raises(TaskNotFoundError):
        await client.get_task("unknown")
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(task.id)
    if "1.0" in spoken["versions"]:
        assert task.id in [each.id async for each in client.list_tasks(limit=2)]
        assert [each.id for each in await client.list_push_configs(waiting.id)] == ["mine"]
        await client.delete_push_config(waiting.id, "mine")
        with pytest.raises(KeelboltError):
            await client.get_extended_card()
    else:
        with pytest.raises((MethodNotFoundError, KeelboltError)):
            await client.list_tasks()


async def test_a_broken_stream_continues_with_a_marked_snapshot(spoken: dict[str, Any]) -> None:
    """The official server has no event ids: events sent during the break are in the snapshot."""
    bound = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = bound.sockets[0].getsockname()[1]
    bound.close()
    await bound.wait_closed()
    reconnects: list[object] = []
    parts: list[str] = []
    events: list[Event] = []
    async with (
        Proxy("127.0.0.1", port) as proxy,
        serving(sdk_agent(f"http://127.0.0.1:{proxy.port}"), port),
        A2AClient(f"http://127.0.0.1:{proxy.port}", on_reconnect=reconnects.append, **spoken) as client,
    ):
        async for event in client.stream_message("stream 60 0.01"):
            events.append(event)
            if event.snapshot:
                assert event.task is not None
                parts = [part.text or "" for made in event.task.artifacts for part in made.parts]
            elif event.artifact is not None:
                parts.append(event.text)
                if len(parts) in (10, 30):
                    proxy.cut()
    assert reconnects  # in 0.3, events after a break are loaded, not streamed
    assert events[-1].snapshot
    assert events[-1].last
    assert events[-1].state is TaskState.completed
    assert "".join(parts) == "".join(f"{n} " for n in range(60))
