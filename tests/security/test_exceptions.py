"""The exception of a worker: visible to operators with secrets masked; callers get one safe sentence."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.types import ASGIApp

from keelbolt.cli.main import main
from keelbolt.grpc.library import aio, grpc
from keelbolt.kernel import new_id
from keelbolt.observability.logs import HumanLines, JSONLines
from keelbolt.operations.table import PREFIX, ROUTES
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.protocol.operations import Operation
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from tests.integration.server.asgi import Headers, ask, call
from tests.integration.server.calls import METHODS, request
from tests.integration.server.entries import ENTRIES, RequestFields, send_fields
from tests.integration.server.people import authenticator, bearer
from tests.integration.webhooks.receiver import receiving

CANARY = "the oven exploded"
PASSWORD = "hunter2-hunter2"
SAFE = "The agent failed while it worked on this task."
WORDS = (CANARY, PASSWORD, "OvenError", "Traceback", "explode_the_oven")
ALICE, OLGA = bearer("alice"), bearer("olga", roles=["operator"])


class OvenError(Exception):
    """An exception of the worker's own."""


async def explode_the_oven(ctx: TaskContext) -> None:
    await ctx.send_status("heating")
    raise OvenError(f"{CANARY}, password={PASSWORD}")


@contextlib.asynccontextmanager
async def agent(storage: str = "memory:") -> AsyncIterator[A2AServer]:
    card = AgentCardConfig(
        name="Oven", description="Explodes.", capabilities=CapabilitiesConfig(streaming=True, push_notifications=True)
    )
    settings = ServerSettings.of({"KEELBOLT_OPERATOR_ROLES": "operator"}, webhook_loopback=True)
    async with A2AServer(
        worker=explode_the_oven,
        agent_card=card,
        storage=storage,
        auth=authenticator(),
        settings=settings,
        grpc_port=0,
    ) as server:
        yield server


async def failed(app: ASGIApp, **configuration: Any) -> dict[str, Any]:
    """A task of Alice that failed."""
    message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": "Bake"}]}
    sent = await call(app, "SendMessage", {"message": message, "configuration": configuration}, headers=ALICE)
    task: dict[str, Any] = sent.json["result"]["task"]
    assert task["status"]["message"]["parts"] == [{"text": SAFE}]
    return task


def check_safe(where: str, data: bytes) -> None:
    found = [word for word in WORDS if word.encode() in data]
    assert not found, f"{where} shows {found}: {data[:500]!r}"


async def test_callers_never_see_it() -> None:
    """Every operation of A2A 1.0 and 0.3 (JSON-RPC, REST, gRPC) and every operations route, for the owner."""
    seen = 0
    async with agent() as server:
        for operation in Operation:
            task = await failed(server.app)
            fields = RequestFields(task=task["id"], context=task["contextId"])
            sends = operation in (Operation.send_message, Operation.send_streaming_message)
            for entry in (entry for entry in ENTRIES if entry.operation is operation):
                reply = await send_fields(
                    server.app, entry, RequestFields(text="Bake") if sends else fields, ALICE, enough=None
                )
                check_safe(str(entry), reply.body)
                seen += SAFE.encode() in reply.body
        task = await failed(server.app)
        assert server.routes.grpc is not None
        async with aio.insecure_channel(f"127.0.0.1:{server.routes.grpc.at.port}") as channel:
            for method in METHODS:
                sends = method.operation in (Operation.send_message, Operation.send_streaming_message)
                data = request(method, RequestFields(text="Bake") if sends else RequestFields(task=task["id"]))
                with contextlib.suppress(grpc.aio.AioRpcError):
                    answer = await _spoken(channel, method, data)
                    check_safe(method.path, answer)
                    seen += SAFE.encode() in answer
        for route in ROUTES:
            if route.method == "GET" and not route.stream:
                path = PREFIX + route.path.replace("{task_id}", task["id"])
                reply = await ask(server.app, "GET", path, headers=ALICE)
                check_safe(path, reply.body)
        events = await ask(server.app, "GET", f"{PREFIX}/tasks/{task['id']}/events", query="after=0", headers=ALICE)
        check_safe("the log as a stream", events.body)
        assert b'"kind":"error"' in events.body  # the log stays dense, without the content
    assert seen > 10


async def _spoken(channel: Any, method: Any, data: bytes) -> bytes:
    async with asyncio.timeout(20):
        if method.operation.streams:
            return b"".join([each async for each in channel.unary_stream(method.path)(data, metadata=ALICE)])
        answer: bytes = await channel.unary_unary(method.path)(data, metadata=ALICE)
        return answer


async def test_webhooks_never_carry_it() -> None:
    async with agent() as server, receiving() as receiver:
        await failed(server.app, taskPushNotificationConfig={"url": receiver.url})
        async with asyncio.timeout(20):
            while not any(SAFE.encode() in arrival.body for arrival in receiver.arrivals):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        for arrival in receiver.arrivals:
            check_safe("a webhook", arrival.body)


async def test_an_operator_reads_it_from_the_operations_api() -> None:
    async with agent() as server:
        task = await failed(server.app)

        async def asked(path: str, who: Headers = OLGA) -> Any:
            return (await ask(server.app, "GET", f"{PREFIX}{path}", query="owner=alice", headers=who)).json

        shown = await asked(f"/tasks/{task['id']}")
        log = await asked(f"/tasks/{task['id']}/log")
    [entry] = [entry for entry in log["entries"] if entry["kind"] == "error"]
    for error in (shown["exception"], entry["data"]):
        assert error["type"].endswith("test_exceptions.OvenError")
        assert error["message"] == f"{CANARY}, password=•••"
        first, second, *_ = error["traceback"].splitlines()
        assert first == "Traceback (most recent call last):"
        assert __file__ in second  # Keelbolt's own frames are omitted
        assert "explode_the_oven" in second
        assert PASSWORD not in json.dumps(error)


async def test_the_logs_contain_it() -> None:
    lines, objects = io.StringIO(), io.StringIO()
    handlers = [logging.StreamHandler(lines), logging.StreamHandler(objects)]
    for handler, formatter in zip(handlers, (HumanLines(), JSONLines()), strict=True):
        handler.setFormatter(formatter)
        logging.getLogger("keelbolt").addHandler(handler)
    try:
        async with agent() as server:
            await failed(server.app)
    finally:
        for handler in handlers:
            logging.getLogger("keelbolt").removeHandler(handler)
    [logged] = [each for each in map(json.loads, objects.getvalue().splitlines()) if "exception" in each]
    assert logged["level"] == "error"
    for text in (logged["exception"], lines.getvalue()):
        assert "explode_the_oven" in text
        assert f"OvenError: {CANARY}, password=•••" in text
        assert PASSWORD not in text


async def test_commands_show_it(tmp_path: Path) -> None:
    """`tasks show` and `tasks tail`, for people and as JSON."""
    storage = f"sqlite:///{tmp_path / 'oven.db'}"
    async with agent(storage) as server:
        task = await failed(server.app)
    whose = ["--storage", storage, "--owner", "alice", "--tenant", "acme"]
    for command in (["show"], ["show", "--json"], ["tail", "--after", "0"], ["tail", "--after", "0", "--json"]):
        arguments = ["tasks", command[0], task["id"], *command[1:], *whose]
        done = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert done.exit_code == 0, done.output
        assert f"{CANARY}, password=•••" in done.output.replace("\\u2022", "•")
        assert "explode_the_oven" in done.output
        assert PASSWORD not in done.output


@pytest.mark.parametrize("words", ["x" * 1_000_000, "line\n" * 100_000])
async def test_it_is_bounded(words: str) -> None:
    from keelbolt.observability.logs import described

    def deep(number: int) -> None:
        if number:
            deep(number - 1)
        raise OvenError(words)

    with pytest.raises(OvenError) as caught:
        deep(300)
    description = described(caught.value)
    assert len(json.dumps(description)) < 40_000
    assert description["traceback"].count("\n") < 5_000
