"""The port: health, reflection, the card's address, several processes, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import KeelboltError
from keelbolt.grpc.library import aio, health_pb2, health_pb2_grpc
from keelbolt.protocol.card import AgentCardConfig
from keelbolt.server.settings import ServerSettings
from tests.integration.grpc.speaking import PB, Talk, refused, talking
from tests.integration.server.actor import agent
from tests.integration.server.asgi import ask

REFLECTION: Any = import_module("grpc_reflection.v1alpha.reflection_pb2")
REFLECTION_STUBS: Any = import_module("grpc_reflection.v1alpha.reflection_pb2_grpc")
CARD = "/.well-known/agent-card.json"


async def test_health() -> None:
    async with talking() as talk:
        health = health_pb2_grpc.HealthStub(talk.channel)
        for service in ("", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert (await refused(health.Check(health_pb2.HealthCheckRequest(service="other")))).code == "NOT_FOUND"
        watching = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
        talk.server.drain()
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watching.cancel()


async def test_health_is_that_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking() as talk:

        async def unwell() -> tuple[int, bytes]:
            return 503, b"{}"

        monkeypatch.setattr(type(talk.server.routes.health), "ready", lambda _self: unwell())
        answer = await health_pb2_grpc.HealthStub(talk.channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_blocking_call_gets_its_response_when_the_agent_stops() -> None:
    """The response has the current task; another process continues it."""
    async with talking() as talk:
        health = health_pb2_grpc.HealthStub(talk.channel).Watch(health_pb2.HealthCheckRequest())
        waiting = asyncio.ensure_future(talk.send("wait"))
        await health.read()
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        stopping = asyncio.ensure_future(talk.server.__aexit__(None, None, None))
        assert not (await waiting).artifacts
        await stopping
        assert asyncio.get_running_loop().time() - began < 2
        health.cancel()


async def test_reflection() -> None:
    async with talking() as talk:
        stub = REFLECTION_STUBS.ServerReflectionStub(talk.channel)
        call = stub.ServerReflectionInfo(iter([REFLECTION.ServerReflectionRequest(list_services="")]))
        [answer] = [one async for one in call]
        names = {service.name for service in answer.list_services_response.service}
        assert {"lf.a2a.v1.A2AService", "a2a.v1.A2AService", "grpc.health.v1.Health"} <= names
        asked = REFLECTION.ServerReflectionRequest(file_containing_symbol="lf.a2a.v1.A2AService")
        [answer] = [one async for one in stub.ServerReflectionInfo(iter([asked]))]
        assert answer.file_descriptor_response.file_descriptor_proto


async def test_the_card_has_the_address() -> None:
    async with talking(settings=ServerSettings.of({}, url="https://agents.example.com/a")) as talk:
        assert talk.server.routes.grpc is not None
        port = talk.server.routes.grpc.at.port
        card = (await ask(talk.server.app, "GET", CARD)).json
        places = [(one["protocolVersion"], one["url"]) for one in card["supportedInterfaces"] if _grpc(one)]
        assert places == [("1.0", f"agents.example.com:{port}"), ("0.3", f"agents.example.com:{port}")]
        assert {"url": f"http://agents.example.com:{port}", "transport": "GRPC"} in card["additionalInterfaces"]


@pytest.mark.parametrize("given", ["grpc.example.com:443", "https://grpc.example.com:443"])
async def test_the_card_has_the_configured_address(given: str) -> None:
    async with talking(settings=ServerSettings.of({}, grpc_url=given)) as talk:
        card = (await ask(talk.server.app, "GET", CARD)).json
        assert {one["url"] for one in card["supportedInterfaces"] if _grpc(one)} == {"grpc.example.com:443"}
        [old] = [one["url"] for one in card["additionalInterfaces"] if one["transport"] == "GRPC"]
        assert old == ("http://" if "://" not in given else "") + given


async def test_an_agent_that_prefers_grpc() -> None:
    async with agent(grpc_port=0) as server:
        preferring = AgentCardConfig(name="A", description="B", protocol="grpc")
        server.routes.cards.replace(preferring)
        card = (await ask(server.app, "GET", CARD)).json
        assert card["supportedInterfaces"][0]["protocolBinding"] == "GRPC"
        assert card["preferredTransport"] == "GRPC"


def _grpc(interface: dict[str, str]) -> bool:
    return interface["protocolBinding"] == "GRPC"


async def test_a_port_in_use() -> None:
    async with talking() as talk:
        assert talk.server.routes.grpc is not None
        port = talk.server.routes.grpc.at.port
        with pytest.raises(KeelboltError, match=f"port {port}"):
            async with agent(grpc_port=port):
                pass


@contextlib.asynccontextmanager
async def command(storage: Path, *options: str) -> AsyncIterator[tuple[int, str, str]]:
    """Run `keelbolt serve`; return its process, its address and its card's gRPC address."""
    arguments = ("serve", "tests.integration.server.actor:act", "--storage", f"sqlite:///{storage}", "--port", "0")
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("keelbolt")),
        *arguments,
        "--grpc-port",
        "0",
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "KEELBOLT_DRAIN_SECONDS": "1"},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while b"listens at" not in (line := await process.stdout.readline()):
                assert line, "it did not start"
        words = line.decode().split()
        yield process.pid, words[4].rstrip(","), words[-1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(30):
            assert await process.wait() == 0


async def test_processes_share_the_port(tmp_path: Path) -> None:
    """Several processes serve calls over many connections for the same tasks; then all of them stop."""
    async with command(tmp_path / "agent.db", "--processes", "3") as (pid, _, at):
        sent: list[Any] = []
        for number in range(12):
            async with aio.insecure_channel(at, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                talk = Talk(agent(), channel, sent=100 * number)
                await channel.channel_ready()
                sent.append(await talk.send("echo hello"))
                for task in sent:
                    assert (await talk.stub.GetTask(PB.GetTaskRequest(id=task.id))).id == task.id
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert len(children) == 3


async def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    storage = tmp_path / "agent.db"
    async with command(storage, "--processes", "2") as (pid, _, at):
        async with aio.insecure_channel(at) as channel:
            talk = Talk(agent(), channel)
            task = await talk.send("echo kept")
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
        async with asyncio.timeout(30):
            while True:
                async with aio.insecure_channel(at, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                    with contextlib.suppress(aio.AioRpcError):
                        got = await Talk(agent(), channel).stub.GetTask(PB.GetTaskRequest(id=task.id), timeout=5)
                        assert got == task
                        break
                await asyncio.sleep(0.1)


def test_serving_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from keelbolt.errors import MissingExtra
    from keelbolt.protocol.protobuf import extra

    monkeypatch.setattr(extra, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtra):
        agent(grpc_port=0)
