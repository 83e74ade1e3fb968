"""The programs that benchmarks measure, each in its own process: our agents, and a bare application.

    python -m benchmarks.served agent STORAGE
    python -m benchmarks.served grpc STORAGE         the same agent, also by gRPC; its card has the port
    python -m benchmarks.served bare STORAGE
    python -m benchmarks.served modules STORAGE      an agent of one apcore module
    python -m benchmarks.served apcore-a2a STORAGE   the same by that package
    python -m benchmarks.served echo STORAGE         the agent of `compare`, served by A2AServer.run
    python -m benchmarks.served idle STORAGE         the agent without limits on tasks, streams and connections

The bare application does the minimum of any server: it reads the same request by the same parser, commits one record
and two log entries, and returns as many bytes. Each program prints its port.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

from keelbolt.kernel import Append, Collection, Draft, Insert, Kernel, new_id, open_storage
from keelbolt.protocol import jsonrpc, v1
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.protocol.requests import SendMessageRequest
from keelbolt.protocol.types import encode
from keelbolt.server import A2AServer
from keelbolt.server.processes import settle_memory
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext, TaskSettings

CARD = AgentCardConfig(
    name="Echo", description="Says it again", capabilities=CapabilitiesConfig(streaming=True, push_notifications=True)
)


UNLIMITED = 1_000_000


async def echo(ctx: TaskContext) -> None:
    """Repeats the message; ``stream N`` streams N chunks, ``wait`` waits."""
    words = ctx.user_text.split()
    if words[:1] == ["stream"]:
        count = int(words[1])
        for number in range(count):
            await ctx.emit_text_artifact(f"{number:08d}" + "x" * 192, append=True, last_chunk=number == count - 1)
        await ctx.complete()
    elif words[:1] == ["wait"]:
        await asyncio.sleep(600)
    else:
        await ctx.complete(f"You said: {ctx.user_text}")


async def respond(ctx: TaskContext) -> None:
    """Responds like the floor; ``stream N`` streams N chunks."""
    if ctx.user_text.startswith("stream "):
        await echo(ctx)
    else:
        await ctx.respond(f"echo: {ctx.user_text}")


class Bare:
    """An application that parses, commits and responds, with a route of static bytes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._kernel: Kernel | None = None
        self._page = b"x" * 1200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["method"] == "GET":
            await _respond(send, self._page)
        else:
            await self._send(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._kernel = open_storage(self._url, declare=[Collection("bare")])
        async with self._kernel:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _send(self, receive: Receive, send: Send) -> None:
        assert self._kernel is not None
        body: bytes = (await receive())["body"]
        call = jsonrpc.parse(body)
        request = v1.decode(call.resolve()[0], call.params)
        assert isinstance(request, SendMessageRequest)
        text = encode(request.message)
        task = new_id()
        await self._kernel.commit(
            "bare", Insert("bare", task, text), Append("bare", task, (Draft("message", text), Draft("answer", text)))
        )
        answer = b'{"task":{"id":"%b","history":[%b],"artifacts":[%b]}}' % (task.encode(), text, text)
        await _respond(send, jsonrpc.result(call.id, answer))


async def _respond(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Server(uvicorn.Server):
    """Serves like `keelbolt serve`, for the agent and the bare application."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        settle_memory()


def main(kind: str, url: str) -> None:
    if kind == "echo":
        A2AServer(worker=respond, agent_card=CARD, storage=url).run(port=0, ready=_print_port)
        return
    if kind == "idle":
        settings = ServerSettings(streams=UNLIMITED, connections=0, connections_each=0)
        tasks = TaskSettings(concurrency=UNLIMITED, drain_seconds=0.0)
        agent = A2AServer(worker=echo, agent_card=CARD, storage=url, settings=settings, task_settings=tasks)
        agent.run(port=0, ready=_print_port)
        return
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    app: Any
    if kind == "bare":
        app = Bare(url)
    elif kind in ("modules", "apcore-a2a"):
        from benchmarks.modules import application

        app = application(kind, url)
    else:
        app = A2AServer(worker=echo, agent_card=CARD, storage=url, grpc_port=0 if kind == "grpc" else None).app
    config = uvicorn.Config(app, http="httptools", ws="none", lifespan="on", access_log=False, log_level="error")
    print(bound.getsockname()[1], flush=True)
    _Server(config).run(sockets=[bound])


def _print_port(address: str) -> None:
    print(address.rpartition(":")[2], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
