"""Invalid input: the right status, nothing left behind, and the next call succeeds."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from keelbolt.grpc.library import aio
from keelbolt.server.settings import ServerSettings
from tests.integration.grpc.speaking import PB, Talk, refused, talking

SERVICE = "/lf.a2a.v1.A2AService/"


async def alive(talk: Talk) -> None:
    assert (await talk.send("echo still here")).status.state == PB.TASK_STATE_COMPLETED
    assert talk.open_streams == 0


async def test_a_message_over_the_limit() -> None:
    async with talking(settings=ServerSettings.of({}, body_bytes=50_000)) as talk:
        for call in (talk.stub.SendMessage, talk.stub.SendStreamingMessage):
            failed = await refused(call(talk.request("x" * 60_000)))
            assert failed.code == "RESOURCE_EXHAUSTED"
        assert (await talk.send("echo " + "x" * 40_000)).artifacts
        await alive(talk)


async def test_metadata_over_the_limit() -> None:
    async with talking(settings=ServerSettings.of({}, header_bytes=9_000)) as talk:
        for size in (9_500, 200_000):
            failed = await refused(talk.stub.ListTasks(PB.ListTasksRequest(), metadata=[("x-much", "x" * size)]))
            assert failed.code == "RESOURCE_EXHAUSTED"
        await alive(talk)


@pytest.mark.parametrize(
    "path",
    [
        "/lf.a2a.v1.A2AService/ListTask",
        "/lf.a2a.v2.A2AService/SendMessage",
        "/a2a.v1.A2AService/ListTasks",
        "/A2AService/SendMessage",
        "/",
        "//",
        "/a/b/c",
    ],
)
async def test_an_unknown_package_or_method(path: str) -> None:
    async with talking() as talk:
        assert (await refused(talk.channel.unary_unary(path)(b""))).code == "UNIMPLEMENTED"
        assert (await refused(talk.channel.unary_stream(path)(b""))).code == "UNIMPLEMENTED"
        await alive(talk)


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x04\x0a\x02\xff\xfe"])
async def test_bytes_that_are_not_a_message(data: bytes) -> None:
    async with talking() as talk:
        failed = await refused(talk.channel.unary_unary(SERVICE + "SendMessage")(data))
        assert (failed.code, failed.reason) == ("INVALID_ARGUMENT", "PARSE_ERROR")
        failed = await refused(talk.channel.unary_stream(SERVICE + "SendStreamingMessage")(data))
        assert (failed.code, failed.reason) == ("INVALID_ARGUMENT", "PARSE_ERROR")
        await alive(talk)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (PB.SendMessageRequest(), "message"),
        (PB.SendMessageRequest(message=PB.Message(message_id="m", parts=[PB.Part(text="x")])), "message.role"),
        (PB.SendMessageRequest(message=PB.Message(message_id="m", role="ROLE_AGENT", parts=[PB.Part(text="x")])), ""),
        (PB.SendMessageRequest(message=PB.Message(message_id="m", role="ROLE_USER")), "message.parts"),
        (PB.SendMessageRequest(message=PB.Message(message_id="m", role="ROLE_USER", parts=[PB.Part()])), ""),
        (PB.SendMessageRequest(message=PB.Message(role="ROLE_USER", parts=[PB.Part(text="x")])), "message.messageId"),
        (
            PB.SendMessageRequest(
                message=PB.Message(message_id="m" * 5000, role="ROLE_USER", parts=[PB.Part(text="x")])
            ),
            "message.messageId",
        ),
    ],
)
async def test_an_incomplete_message(request_: Any, field: str) -> None:
    async with talking() as talk:
        for call in (talk.stub.SendMessage, talk.stub.SendStreamingMessage):
            failed = await refused(call(request_))
            assert (failed.code, failed.reason) == ("INVALID_ARGUMENT", "INVALID_PARAMS")
            assert field in failed.fields or not field
        await alive(talk)


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 30, "0x1"])
async def test_an_invalid_event_number(after: str) -> None:
    async with talking() as talk:
        task = await talk.send("wait", now=True)
        for name in ("last-event-id", "after-seq"):
            call = talk.stub.SubscribeToTask(PB.SubscribeToTaskRequest(id=task.id), metadata=[(name, after)])
            assert (await refused(call)).code == "INVALID_ARGUMENT"
        await talk.no_stream()


async def test_a_deadline_ends_the_call_and_not_the_task() -> None:
    async with talking() as talk:
        failed = await refused(talk.stub.SendMessage(talk.request("wait", message_id="late"), timeout=0.3))
        assert failed.code == "DEADLINE_EXCEEDED"
        configuration = PB.SendMessageConfiguration(return_immediately=True)
        again = await talk.stub.SendMessage(talk.request("wait", configuration, message_id="late"))
        assert again.task.status.state == PB.TASK_STATE_WORKING
        await alive(talk)


async def test_clients_that_disconnect() -> None:
    """Channels closed in the middle of calls and streams leave no stream and no asyncio task behind."""
    async with talking() as talk:
        assert talk.server.routes.grpc is not None
        at = str(talk.server.routes.grpc.at)
        for _ in range(20):
            channel = aio.insecure_channel(at)
            other = Talk(talk.server, channel, sent=talk.sent)
            stream = other.stub.SendStreamingMessage(other.request("wait"))
            call = asyncio.ensure_future(_sent(other))
            await stream.read()
            talk.sent = other.sent
            await channel.close()
            with contextlib.suppress(asyncio.CancelledError):
                await call
        await talk.no_stream()
        await alive(talk)


async def _sent(talk: Talk) -> None:
    with contextlib.suppress(aio.AioRpcError):
        await talk.stub.SendMessage(talk.request("wait"))


async def test_bytes_that_are_not_http2() -> None:
    async with talking() as talk:
        assert talk.server.routes.grpc is not None
        port = talk.server.routes.grpc.at.port
        for sent in (
            b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
            b"\x00" * 1000,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 99,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            writer.close()
        await alive(talk)


async def test_more_connections_than_allowed_are_closed() -> None:
    """Connections to this port can't use up the files that the process may open."""
    async with talking(settings=ServerSettings.of({}, connections=4)) as talk:
        await alive(talk)  # has one connection
        assert talk.server.routes.grpc is not None
        port, begin = (
            talk.server.routes.grpc.at.port,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04" + bytes(5),
        )
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for _, writer in opened:
            writer.write(begin)
        greeted = 0
        for reader, _ in opened:
            with contextlib.suppress(ConnectionError):
                greeted += await reader.read(1) != b""
        for _, writer in opened:  # not earlier: a connection that closes makes room for one that waits
            writer.close()
        assert greeted <= 3
        await alive(talk)
