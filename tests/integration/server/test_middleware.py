"""Middlewares run before and after every operation in every binding; and the worker's view of a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import UnsupportedOperationError
from keelbolt.grpc.library import aio
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.protocol.operations import Operation
from keelbolt.server import A2AServer, IncomingRequest, pass_headers
from keelbolt.tasks import TaskContext, TaskEngine, TaskSettings
from keelbolt.tasks.runner import MAX_WAITING, RequestContexts
from keelbolt.tasks.sends import Envelope
from tests.integration.grpc.speaking import Talk
from tests.integration.server.asgi import ask, call
from tests.integration.tasks.stage import message as new_message

CARD = AgentCardConfig(name="Seer", description="Sees", capabilities=CapabilitiesConfig(streaming=True))
SECRET = "a-token-that-must-not-be-stored"
HEADERS = [("accept-language", "de"), ("x-token", SECRET)]


async def see(ctx: TaskContext) -> None:
    """Returns its request context; `ask` waits for another message first."""
    if ctx.user_text == "slow":
        await asyncio.sleep(0.2)
    shown = {name: value for name, value in ctx.request_context.items() if name != "x-token"}
    await ctx.emit_data_artifact({**shown, "token": len(ctx.request_context.get("x-token", ""))}, append=ctx.turn > 1)
    if ctx.user_text == "bye":
        await ctx.complete()
    else:
        await ctx.request_input("more?")


def message(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}], **more}}


def seen(task: dict[str, Any]) -> list[Any]:
    return [part["data"] for artifact in task["artifacts"] for part in artifact["parts"]]


async def test_each_message_has_the_request_context_of_its_own_request() -> None:
    async with A2AServer(
        worker=see, agent_card=CARD, middlewares=[pass_headers("Accept-Language", "X-Token")]
    ) as server:
        task = (await call(server.app, "SendMessage", message(), headers=HEADERS)).json["result"]["task"]
        assert seen(task) == [{"accept-language": "de", "token": len(SECRET)}]
        french = [*HEADERS[1:], ("accept-language", "fr"), ("content-type", "application/json")]
        body = json.dumps(message(taskId=task["id"])).encode()
        task = (await ask(server.app, "POST", "/message:send", headers=french, body=body)).json["task"]
        assert seen(task)[1:] == [{"accept-language": "fr", "token": len(SECRET)}]
        task = (await call(server.app, "SendMessage", message("bye", taskId=task["id"]))).json["result"]["task"]
        assert seen(task)[2:] == [{"token": 0}]


async def test_a_message_to_a_running_task_too() -> None:
    async with A2AServer(worker=see, agent_card=CARD, middlewares=[pass_headers("accept-language")]) as server:
        params = {**message("slow"), "configuration": {"returnImmediately": True}}
        task = (await call(server.app, "SendMessage", params, headers=HEADERS)).json["result"]["task"]
        more = message("bye", taskId=task["id"])
        more["message"]["messageId"] = "m2"
        done = await call(server.app, "SendMessage", more, headers=[("accept-language", "it")])
        assert [found.get("accept-language") for found in seen(done.json["result"]["task"])] == ["de", "it"]


async def test_it_is_never_stored(tmp_path: Path) -> None:
    """No file of the storage contains the value; a task that waited for a slot still has it."""
    passing = [pass_headers("X-Token")]
    settings = TaskSettings.of({}, concurrency=1)
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with A2AServer(
        worker=see, agent_card=CARD, storage=url, middlewares=passing, task_settings=settings
    ) as server:
        sends = (call(server.app, "SendMessage", message("slow"), headers=HEADERS) for _ in range(3))
        replies = await asyncio.gather(*sends)
        assert [seen(reply.json["result"]["task"]) for reply in replies] == [[{"token": len(SECRET)}]] * 3
        for file in tmp_path.iterdir():
            if file.is_file():
                assert SECRET.encode() not in file.read_bytes(), file.name


async def test_another_process_has_none(tmp_path: Path) -> None:
    """A turn that another process starts has an empty request context."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with TaskEngine.on(url) as receiver:
        sent = await receiver.tasks.send(new_message("bye"), Envelope(request={"x-token": SECRET}))
        async with TaskEngine.on(url, see):
            task = await receiver.tasks.settled(sent, seconds=20)
            found = await receiver.store.task(task)
    assert found.artifacts[0].parts[0].data == {"token": 0}


async def test_before_after_and_refusal() -> None:
    """Middlewares are entered in order and left in reverse, for streams at their end; an error is the response."""
    log: list[str] = []

    @asynccontextmanager
    async def outer(request: IncomingRequest) -> AsyncIterator[None]:
        log.append(f"outer {request.operation} {request.principal.owner or 'anonymous'} {request.version}")
        try:
            yield
        finally:
            log.append("outer left")

    @asynccontextmanager
    async def inner(request: IncomingRequest) -> AsyncIterator[None]:
        if request.operation is Operation.list_tasks:
            raise UnsupportedOperationError("tasks are not listed here")
        yield
        log.append("inner left")

    async with A2AServer(worker=see, agent_card=CARD, middlewares=[outer, inner], grpc_port=0) as server:
        reply = await call(server.app, "SendStreamingMessage", message("bye"))
        assert reply.events[-1]["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert log == ["outer SendStreamingMessage anonymous 1.0", "inner left", "outer left"]
        log.clear()
        refused = await call(server.app, "ListTasks", {})
        assert (refused.json["error"]["code"], refused.json["error"]["message"]) == (
            -32004,
            "tasks are not listed here",
        )
        assert (await ask(server.app, "GET", "/tasks")).status == 400
        assert log == ["outer ListTasks anonymous 1.0", "outer left"] * 2
        assert server.routes.grpc is not None
        async with aio.insecure_channel(str(server.routes.grpc.at)) as channel:
            task = await Talk(server, channel).send("bye")
            assert task.id
        assert log[-3:] == ["outer SendMessage anonymous 1.0", "inner left", "outer left"]


async def test_an_exception_of_a_middleware_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def broken(_request: IncomingRequest) -> AsyncIterator[None]:
        raise RuntimeError("SELECT secret")
        yield

    async with A2AServer(worker=see, agent_card=CARD, middlewares=[broken]) as server:
        reply = await call(server.app, "SendMessage", message())
        assert reply.json["error"]["code"] == -32603
        assert "secret" not in reply.body.decode()
    assert "SELECT secret" in caplog.text


def test_requests_that_wait_are_bounded() -> None:
    """The oldest request context is dropped, and each is taken once."""
    contexts, scope = RequestContexts(), MemoryKernel().scoped("p")
    for number in range(MAX_WAITING + 1):
        contexts.put((scope, "t", str(number)), {"n": number})
    assert contexts.take((scope, "t", "0")) == {}
    assert contexts.take((scope, "t", "1")) == {"n": 1}
    assert contexts.take((scope, "t", "1")) == {}
