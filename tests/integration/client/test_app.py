"""`A2AClient(app=…)`: an agent in this process, without a network; and the files of an agent."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.auth import APIKeyAuthenticator
from keelbolt.client import A2AClient, A2AServerError, Part, Task, TaskState, text_of
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext
from tests.integration.client.serving import CARD, COMBINATIONS, echo, serving


@pytest.mark.parametrize(("binding", "version"), COMBINATIONS)
async def test_an_app_is_called_without_a_network(binding: str, version: str) -> None:
    server = A2AServer(worker=echo, agent_card=CARD)
    async with A2AClient(app=server.app, bindings=[binding], versions=[version]) as client:
        assert text_of(await client.send_message("Hello")) == "You said: Hello"
        events = [event async for event in client.stream_message("stream 5")]
        assert "".join(event.text for event in events if event.artifact) == "0 1 2 3 4 "
        assert events[-1].last


async def test_a_response_of_an_app_is_streamed() -> None:
    """Each event arrives before the worker creates the next one."""
    seen = asyncio.Event()

    async def one_by_one(ctx: TaskContext) -> None:
        for number in range(3):
            await ctx.emit_text_artifact(f"{number} ", append=number > 0)
            async with asyncio.timeout(10):
                await seen.wait()
            seen.clear()
        await ctx.complete()

    async with A2AClient(app=A2AServer(worker=one_by_one, agent_card=CARD).app) as client:
        text = ""
        async for event in client.stream_message("go"):
            if event.artifact is not None:
                text += event.text
                seen.set()
    assert text == "0 1 2 "


async def test_leaving_a_stream_ends_the_request_and_not_the_task() -> None:
    server = A2AServer(worker=echo, agent_card=CARD)
    async with A2AClient(app=server.app) as client:
        stream = client.stream_message("stream 20 0.01")
        first = await anext(stream)
        await stream.aclose()
        async with asyncio.timeout(20):
            events = [event async for event in client.subscribe(str(first.task_id))]
        assert events[-1].state is TaskState.completed


async def test_an_app_that_fails_is_a_server_error() -> None:
    async def broken(scope: object, receive: object, send: object) -> None:
        raise RuntimeError("no")

    async with A2AClient(app=broken, card={"name": "x", "url": "http://localhost/"}) as client:
        with pytest.raises(A2AServerError, match="HTTP 500"):
            await client.get_task("t")
    with pytest.raises(ValueError, match="url"):
        A2AClient()


async def test_files_of_an_agent_are_downloaded_with_credentials() -> None:
    """The part of a file has its path; the client downloads it only from the agent."""

    async def makes_a_file(ctx: TaskContext) -> None:
        file = await ctx.keep_file(b"\x00" * 100_000, media_type="application/octet-stream", filename="zeros")
        await ctx.emit_artifact(artifact_id="f", parts=[Part(url=file.path, filename=file.filename)])
        await ctx.complete()

    keys = APIKeyAuthenticator.of({"alices-key-of-some-length": "alice"})
    server = A2AServer(worker=makes_a_file, agent_card=CARD, auth=keys)
    async with serving(server.app) as url:
        async with A2AClient(url, headers={"X-API-Key": "alices-key-of-some-length"}) as client:
            task = await client.send_message("make it")
            assert isinstance(task, Task)
            [part] = task.artifacts[0].parts
            assert await client.download(part) == b"\x00" * 100_000
            assert await client.download(Part(raw=b"within")) == b"within"
            with pytest.raises(A2AServerError):
                await client.download(f"{part.url}0")
            with pytest.raises(ValueError, match="trusted_origins"):
                await client.download("https://elsewhere.example/file")
            with pytest.raises(ValueError, match="not a file"):
                await client.download(Part(text="Hi"))
        server.drain()
