"""Streams by gRPC are the streams of JSON-RPC: the same events in the same order with the same numbers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from keelbolt.protocol import v1
from keelbolt.protocol.protobuf.methods import METHODS_V03, METHODS_V1, Method
from keelbolt.protocol.protobuf.numbers import number_of
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks.settings import TaskSettings
from tests.integration.grpc.speaking import PB, Talk, plain, refused, talking, until

SUBSCRIBE = METHODS_V1["SubscribeToTask"]
STREAM = METHODS_V1["SendStreamingMessage"]


async def events(talk: Talk, method: Method, request: Any, **metadata: str) -> list[tuple[int | None, Any]]:
    """Return every event of a stream as JSON, with its number."""
    given = [(name.replace("_", "-"), value) for name, value in metadata.items()]
    stream = talk.channel.unary_stream(method.path)(request.SerializeToString(), metadata=given)
    return [(number_of(data), method.read_answer(data)) async for data in stream]


async def test_a_stream_is_the_same_as_by_json_rpc() -> None:
    async with talking() as talk:
        task = await talk.send("count 40 0.005", now=True)
        request = PB.SubscribeToTaskRequest(id=task.id)
        ours, theirs = await asyncio.gather(
            events(talk, SUBSCRIBE, request, last_event_id="1"),
            talk.stream_json("SubscribeToTask", {"id": task.id}, [("last-event-id", "1")]),
        )
        assert len(ours) > 40
        assert [seq for seq, _ in ours] == [seq for seq, _ in theirs]
        for (_, one), (_, other) in zip(ours, theirs, strict=True):
            # Protobuf omits false and empty values; all other values are equal.
            assert one == plain(STREAM.answer.FromString(STREAM.write_answer(json.dumps(other).encode())))
            assert v1.decode_event(one).model_dump(exclude_defaults=True) == v1.decode_event(other).model_dump(
                exclude_defaults=True
            )


async def test_numbers_are_dense_and_the_official_message_is_untouched() -> None:
    async with talking() as talk:
        found = await events(talk, STREAM, talk.request("count 5"))
        seqs = [seq for seq, _ in found]
        assert None not in seqs
        assert seqs == sorted(set(seqs), key=lambda seq: seq or 0)
        texts = [one["artifactUpdate"]["artifact"]["parts"][0]["text"] for _, one in found if "artifactUpdate" in one]
        assert texts == ["0 ", "1 ", "2 ", "3 ", "4 "]


@pytest.mark.parametrize("name", ["last_event_id", "after_seq"])
async def test_a_stream_continues_after_any_event(name: str) -> None:
    async with talking() as talk:
        all_ = await events(talk, STREAM, talk.request("count 8"))
        task_id = all_[0][1]["task"]["id"]
        request = PB.SubscribeToTaskRequest(id=task_id)
        for at in range(len(all_) - 1):
            rest = await events(talk, SUBSCRIBE, request, **{name: str(all_[at][0])})
            assert rest == all_[at + 1 :]


async def test_a_stream_of_0_3_continues() -> None:
    async with talking() as talk:
        stream, subscription = METHODS_V03["SendStreamingMessage"], METHODS_V03["TaskSubscription"]
        all_ = await events(talk, stream, talk.old_request("count 8"))
        request = subscription.request(name=f"tasks/{all_[0][1]['task']['id']}")
        assert await events(talk, subscription, request, last_event_id=str(all_[3][0])) == all_[4:]


async def test_subscribing_to_an_ended_task() -> None:
    async with talking() as talk:
        task = await talk.send("echo x")
        failed = await refused(talk.stub.SubscribeToTask(PB.SubscribeToTaskRequest(id=task.id)))
        assert (failed.code, failed.reason) == ("FAILED_PRECONDITION", "UNSUPPORTED_OPERATION")


async def test_an_agent_that_does_not_stream() -> None:
    async with talking(streaming=False) as talk:
        failed = await refused(talk.stub.SendStreamingMessage(talk.request("echo")))
        assert (failed.code, failed.reason) == ("FAILED_PRECONDITION", "UNSUPPORTED_OPERATION")


async def test_a_client_that_disconnects_leaves_nothing_behind() -> None:
    """The stream is closed at once, even if it is idle, and the task continues."""
    async with talking() as talk:
        stream = talk.stub.SendStreamingMessage(talk.request("wait"))
        task = (await stream.read()).task
        assert talk.open_streams == 1
        stream.cancel()
        await talk.no_stream()
        got = await talk.stub.GetTask(PB.GetTaskRequest(id=task.id))
        assert got.status.state == PB.TASK_STATE_WORKING


async def test_a_disconnect_may_cancel() -> None:
    async with talking(settings=ServerSettings.of({}, cancel_on_disconnect=True)) as talk:
        stream = talk.stub.SendStreamingMessage(talk.request("wait"))
        task = (await stream.read()).task
        stream.cancel()
        await until(lambda: talk.is_in(task.id, PB.TASK_STATE_CANCELED))


async def test_streams_are_counted_with_those_of_http() -> None:
    async with talking(settings=ServerSettings.of({}, streams=2)) as talk:
        open_ = [talk.stub.SendStreamingMessage(talk.request("wait")) for _ in range(2)]
        for stream in open_:
            await stream.read()
        failed = await refused(talk.stub.SendStreamingMessage(talk.request("wait")))
        assert (failed.code, failed.reason, failed.trailing["retry-after"]) == ("UNAVAILABLE", "TOO_MANY_STREAMS", "5")
        for stream in open_:
            stream.cancel()


async def test_a_stream_ends_at_a_deadline_and_the_task_continues() -> None:
    async with talking() as talk:
        stream = talk.stub.SendStreamingMessage(talk.request("wait"), timeout=0.3)
        task = (await stream.read()).task
        await stream.read()
        assert (await refused(stream)).code == "DEADLINE_EXCEEDED"
        await talk.no_stream()
        assert (await talk.stub.GetTask(PB.GetTaskRequest(id=task.id))).status.state == PB.TASK_STATE_WORKING


async def test_an_agent_that_stops_marks_the_stream_as_incomplete() -> None:
    async with talking(task_settings=TaskSettings.of({}, drain_seconds=0.5)) as talk:
        stream = talk.stub.SendStreamingMessage(talk.request("wait"))
        await stream.read()
        await stream.read()
        talk.server.drain()
        failed = await refused(stream)
        assert (failed.code, failed.reason) == ("UNAVAILABLE", "STOPPING")
