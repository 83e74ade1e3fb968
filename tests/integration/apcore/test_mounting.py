"""An agent mounted in another application, with and without a lifespan."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from keelbolt.apcore import async_serve
from keelbolt.client import A2AClient
from keelbolt.errors import KeelboltError
from keelbolt.protocol.types import Part, Task
from tests.integration.apcore.calling import output, task_of
from tests.integration.apcore.modules import Echo, registry_of
from tests.integration.server.asgi import ask
from tests.integration.server.serving import free_socket


class At:
    """An application below a path, for a client that knows the path."""

    def __init__(self, app: Any, path: str) -> None:
        self.app = app
        self.path = path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = self.path + scope["path"]
        await self.app({**scope, "path": path, "raw_path": path.encode()}, receive, send)


@contextlib.asynccontextmanager
async def mounted(path: str = "/agent", **options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """An outer application without a lifespan, and the agent in it."""
    agent = await async_serve(registry_of(echo=Echo()), **options)
    try:
        yield Starlette(routes=[Mount(path, agent)]), agent.state.server
    finally:
        await agent.state.server.__aexit__(None, None, None)


async def test_the_agent_starts_on_the_first_request() -> None:
    async with mounted() as (app, server):
        with pytest.raises(KeelboltError, match="not running"):
            _ = server.routes
        assert output(await task_of(At(app, "/agent"), {"text": "hi"})) == {"text": "hi"}


async def test_the_agent_starts_once() -> None:
    async with mounted() as (app, _):
        tasks = await asyncio.gather(*[task_of(At(app, "/agent"), {"text": str(n)}) for n in range(10)])
        assert [output(task)["text"] for task in tasks] == [str(n) for n in range(10)]


@pytest.mark.parametrize("path", ["/agent", "/a/b"])
async def test_the_card_has_the_mounted_path(path: str) -> None:
    async with mounted(path, explorer=True) as (app, _):
        reply = await ask(app, "GET", f"{path}/.well-known/agent-card.json", headers=[("host", "localhost:81")])
        card = reply.json
        base = f"http://localhost:81{path}"
        assert card["url"] == f"{base}/"
        assert {interface["url"].rstrip("/") for interface in card["supportedInterfaces"]} == {base}
        assert (await ask(app, "GET", f"{path}/explorer/")).status == 200


async def test_nested_mounts() -> None:
    async with mounted("/inner") as (inner, _):
        app = Starlette(routes=[Mount("/outer", inner)])
        reply = await ask(app, "GET", "/outer/inner/.well-known/agent-card.json", headers=[("host", "localhost:81")])
        assert reply.json["url"] == "http://localhost:81/outer/inner/"


async def test_a_failed_start_is_retried(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    async with mounted(storage=f"sqlite:///{folder}/agent.db") as (app, _):
        folder.write_text("in the way")
        with pytest.raises(Exception):  # noqa: B017 - whatever the storage raises
            await task_of(At(app, "/agent"), {"text": "hi"})
        folder.unlink()
        folder.mkdir()
        assert output(await task_of(At(app, "/agent"), {"text": "hi"})) == {"text": "hi"}


async def test_a_forwarded_lifespan_starts_and_stops_the_agent() -> None:
    agent = await async_serve(registry_of(echo=Echo()))
    server = agent.state.server
    app = Starlette(lifespan=server.lifespan, routes=[Mount("/agent", agent)])
    async with app.router.lifespan_context(app):
        assert output(await task_of(At(app, "/agent"), {"text": "hi"})) == {"text": "hi"}
    with pytest.raises(KeelboltError, match="not running"):  # the agent does not start again
        await task_of(At(app, "/agent"), {"text": "hi"})


async def test_the_client_finds_and_calls_the_agent() -> None:
    agent = await async_serve(registry_of(echo=Echo()))
    bound = free_socket()
    config = uvicorn.Config(Starlette(routes=[Mount("/agent", agent)]), log_config=None, access_log=False)
    host = uvicorn.Server(config)
    serving = asyncio.create_task(host._serve([bound]))
    while not host.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.005)
    try:
        async with A2AClient(f"http://127.0.0.1:{bound.getsockname()[1]}/agent") as client:
            task = await client.send_message([Part(data={"text": "hi"})], skill="echo")
            assert isinstance(task, Task)
            assert task.artifacts[0].parts[0].data == {"text": "hi"}
    finally:
        host.should_exit = True
        await serving
        await agent.state.server.__aexit__(None, None, None)
