"""Links to files: paths in the storage, and on the wire the address that the caller used."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from keelbolt.client import A2AClient, Part, PushConfig, Task
from keelbolt.kernel import open_storage
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from keelbolt.tasks.families import EVENTS
from keelbolt.tasks.files import TaskFile, with_addresses
from tests.integration.client.serving import COMBINATIONS, serving
from tests.integration.webhooks.receiver import receiving

CARD = AgentCardConfig(
    name="Files", description="Makes files", capabilities=CapabilitiesConfig(streaming=True, push_notifications=True)
)
CONTENT = b"\x00" * 100_000


async def makes_a_file(ctx: TaskContext) -> None:
    if ctx.user_text == "ask":
        file = await ctx.keep_file(CONTENT)
        await ctx.request_input("This one?", data={"url": file.path})
        return
    await ctx.emit_file(CONTENT, filename="zeros.bin")
    await ctx.complete()


def server(storage: str = "memory:", *, grpc_port: int | None = None, **settings: Any) -> A2AServer:
    return A2AServer(
        worker=makes_a_file,
        agent_card=CARD,
        storage=storage,
        grpc_port=grpc_port,
        settings=ServerSettings.of({}, **settings),
    )


@pytest.mark.parametrize(("binding", "version"), COMBINATIONS)
async def test_every_operation_shows_the_address(binding: str, version: str) -> None:
    agent = server()
    async with serving(agent.app) as url, A2AClient(url, bindings=[binding], versions=[version]) as client:
        sent = await client.send_message("make it")
        assert isinstance(sent, Task)
        found = [sent.artifacts[0].parts[0], (await client.get_task(sent.id)).artifacts[0].parts[0]]
        events = [event async for event in client.stream_message("make it")]
        found += [event.artifact.parts[0] for event in events if event.artifact is not None]
        again = [event async for event in client.subscribe(str(events[0].task_id), after=1)]
        found += [event.artifact.parts[0] for event in again if event.artifact is not None]
        listed = [task async for task in client.list_tasks(include_artifacts=True)]
        found += [task.artifacts[0].parts[0] for task in listed if task.artifacts]
        assert len(found) >= 4
        for part in found:
            assert str(part.url).startswith(f"{url}/keelbolt/v1/tasks/")
            assert await client.download(part) == CONTENT
        agent.drain()


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_grpc_and_webhooks_show_the_configured_address(version: str, tmp_path: Path) -> None:
    """A gRPC call has no HTTP address, and a webhook has no caller."""
    async with receiving() as receiver:
        agent = server(f"sqlite:///{tmp_path}/a.db", grpc_port=0, url="https://agent.example/a", webhook_loopback=True)
        async with serving(agent.app) as url:
            card = await _card(url)
            async with A2AClient(url, card=card, bindings=["GRPC"], versions=[version], trusted_origins=[]) as client:
                sent = await client.send_message("make it", push_config=PushConfig(url=receiver.url))
                assert isinstance(sent, Task)
                address = str(sent.artifacts[0].parts[0].url)
                assert address.startswith(f"https://agent.example/a/keelbolt/v1/tasks/{sent.id}/files/")
                events = [event async for event in client.stream_message("make it")]
                urls = [str(event.artifact.parts[0].url) for event in events if event.artifact is not None]
                assert [link.startswith("https://agent.example/a/keelbolt/v1/tasks/") for link in urls] == [True]
            async with asyncio.timeout(20):
                while not any(address.encode() in got.body for got in receiver.arrivals):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            agent.drain()


async def _card(url: str) -> dict[str, Any]:
    """The card with the gRPC address of this machine."""
    async with A2AClient(url) as client:
        card = await client.discover()
    grpc = [item for item in card["supportedInterfaces"] if item["protocolBinding"] == "GRPC"]
    for item in grpc:
        item["url"] = f"127.0.0.1:{item['url'].rpartition(':')[2]}"
    return {**card, "supportedInterfaces": grpc, "additionalInterfaces": [], "url": None}


async def test_the_storage_has_the_path_so_that_a_server_may_move(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/a.db"
    agent = server(storage)
    async with serving(agent.app) as url, A2AClient(url) as client:
        task = await client.send_message("make it")
        assert isinstance(task, Task)
        asked = await client.send_message("ask")
        assert isinstance(asked, Task)
        agent.drain()
    async with open_storage(storage) as kernel:
        page = await kernel.read_log("~anonymous", EVENTS, task.id)
        stored = b"".join(entry.data for entry in page.entries)
        assert b'"url":"/keelbolt/v1/tasks/' in stored
        assert b"127.0.0.1" not in stored
    moved = server(storage, url="https://moved.example")
    async with serving(moved.app) as url, A2AClient(url, card={"name": "Files", "url": url}) as client:
        found = await client.get_task(task.id)
        assert str(found.artifacts[0].parts[0].url).startswith("https://moved.example/keelbolt/v1/tasks/")
        question = (await client.get_task(asked.id)).status.message
        assert question is not None
        assert str(question.parts[1].data).startswith("{'url': 'https://moved.example/keelbolt/")
        moved.drain()


def test_only_links_to_files_are_changed() -> None:
    path = TaskFile("t-1", "0" * 64, 1).path
    others = [
        {"text": f'"url":"{path}"'},
        {"url": "/keelbolt/v1/tasks/t-1"},
        {"url": f"https://elsewhere.example{path}"},
        {"url": f"{path}0"},
        {"data": {"href": path}},
    ]
    for other in others:
        json = to_json({"parts": [other]})
        assert with_addresses(json, "https://agent.example") == json
    json = to_json({"parts": [{"url": path, "filename": "a"}, {"data": {"url": path}}]})
    shown = from_json(with_addresses(json, "https://agent.example"))
    assert [shown["parts"][0]["url"], shown["parts"][1]["data"]["url"]] == [f"https://agent.example{path}"] * 2
    assert with_addresses(json, "") == json
    assert Part(url=path).url == path
