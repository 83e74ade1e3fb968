"""Agents that are called by gRPC, in this process, so that the test can inspect them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from keelbolt.grpc.library import aio
from keelbolt.protocol.protobuf.shapes import error_details_pb2, status_pb2
from keelbolt.server import A2AServer
from tests.integration.server.actor import agent
from tests.integration.server.asgi import Headers, call

PB: Any = import_module("a2a.types.a2a_pb2")
OLD: Any = import_module("a2a.compat.v0_3.a2a_v0_3_pb2")
_STUBS: Any = import_module("a2a.types.a2a_pb2_grpc")
_OLD_STUBS: Any = import_module("a2a.compat.v0_3.a2a_v0_3_pb2_grpc")


@dataclass
class Talk:
    """An agent, a channel to it, and the official stubs of both versions."""

    server: A2AServer
    channel: Any
    sent: int = 0
    stub: Any = field(init=False)
    old: Any = field(init=False)

    def __post_init__(self) -> None:
        self.stub = _STUBS.A2AServiceStub(self.channel)
        self.old = _OLD_STUBS.A2AServiceStub(self.channel)

    @property
    def open_streams(self) -> int:
        return self.server.routes.streams.open

    async def no_stream(self) -> None:
        """Wait until no stream is open."""

        async def closed() -> bool:
            return not self.open_streams

        await until(closed)

    async def is_in(self, task_id: str, state: int) -> bool:
        task = await self.stub.GetTask(PB.GetTaskRequest(id=task_id))
        return bool(task.status.state == state)

    def message(self, text: str, **more: Any) -> Any:
        self.sent += 1
        more.setdefault("message_id", f"m{self.sent}")
        return PB.Message(role=PB.ROLE_USER, parts=[PB.Part(text=text)], **more)

    def request(self, text: str, configuration: Any = None, **more: Any) -> Any:
        return PB.SendMessageRequest(message=self.message(text, **more), configuration=configuration)

    def old_request(self, text: str, configuration: Any = None, **more: Any) -> Any:
        self.sent += 1
        more.setdefault("message_id", f"m{self.sent}")
        message = OLD.Message(role=OLD.ROLE_USER, content=[OLD.Part(text=text)], **more)
        return OLD.SendMessageRequest(request=message, configuration=configuration)

    async def send(self, text: str, *, metadata: Headers = (), **more: Any) -> Any:
        """Send this and return the task; with `now`, return at once."""
        configuration = PB.SendMessageConfiguration(return_immediately=True) if more.pop("now", False) else None
        answer = await self.stub.SendMessage(self.request(text, configuration, **more), metadata=metadata)
        assert answer.WhichOneof("payload") == "task"
        return answer.task

    async def json(self, method: str, params: Any, headers: Headers = ()) -> Any:
        """Call the same agent by JSON-RPC."""
        reply = await call(self.server.app, method, params, headers=headers)
        return reply.json["result"]

    async def stream_json(self, method: str, params: Any, headers: Headers = ()) -> list[tuple[int, Any]]:
        """Return the events of a stream by JSON-RPC, with their ids."""
        reply = await call(self.server.app, method, params, headers=headers)
        ids = [int(line[3:]) for line in reply.body.splitlines() if line.startswith(b"id:")]
        return list(zip(ids, [event["result"] for event in reply.events], strict=True))


@contextlib.asynccontextmanager
async def talking(**more: Any) -> AsyncIterator[Talk]:
    """An agent of `actor` with gRPC on a free port."""
    async with agent(grpc_port=0, **more) as server:
        assert server.routes.grpc is not None
        async with aio.insecure_channel(str(server.routes.grpc.at)) as channel:
            yield Talk(server, channel)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until this holds."""
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 - what is waited for happens elsewhere
            await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Refused:
    """The status with which a call was refused."""

    code: str
    reason: str
    message: str
    fields: tuple[str, ...]
    trailing: dict[str, Any]


async def refused(call_: Any) -> Refused:
    """Return the refusal of a call, or of the first read of a stream."""
    try:
        answer = await (call_.read() if hasattr(call_, "read") else call_)
    except aio.AioRpcError as error:
        return _refused(error)
    raise AssertionError(f"answered with {answer}")


def _refused(error: Any) -> Refused:
    trailing = dict(error.trailing_metadata() or ())
    reason, fields = "", []
    if data := trailing.get("grpc-status-details-bin"):
        for detail in status_pb2.Status.FromString(data).details:
            info, wrong = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
            if detail.Unpack(info):
                reason = info.reason
            elif detail.Unpack(wrong):
                fields = [one.field for one in wrong.field_violations]
    return Refused(error.code().name, reason, error.details() or "", tuple(fields), trailing)


def plain(message: Any) -> Any:
    """Return a message in its official JSON form."""
    to_dict = import_module("google.protobuf.json_format").MessageToDict
    return json.loads(json.dumps(to_dict(message)))
