"""Open streams: an immediate first event, heartbeats, several readers, disconnects, and limits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from tests.integration.server.actor import agent
from tests.integration.server.people import authenticator, bearer
from tests.integration.server.reading import events, rpc, sending, streamed
from tests.integration.server.serving import served, talking


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - it is seen from outside
            await asyncio.sleep(0.01)


def open_streams(server: A2AServer) -> int:
    return server.routes.streams.open


async def test_the_first_event_precedes_the_work(tmp_path: Path) -> None:
    """The first event arrives before the worker has done anything, and has the state submitted."""
    async with talking(agent()) as client:
        asked = rpc("SendStreamingMessage", sending(f"until {tmp_path}/go"))
        async with client.stream("POST", "/", json=asked) as response:
            reading = events(response)
            _, first = await anext(reading)
            assert first["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
            _, second = await anext(reading)
            assert second["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING"
            (tmp_path / "go").touch()
            rest = [next(iter(event)) async for _, event in reading]
        assert rest == ["artifactUpdate", "statusUpdate"]


@pytest.mark.parametrize("path", ["/", "/message:stream", "/v1/message:stream"])
async def test_headers_of_a_stream(path: str) -> None:
    """The response is not cached and not buffered by proxies."""
    async with talking(agent()) as client:
        params = sending("echo")
        answer = await client.post(path, json=rpc("SendStreamingMessage", params) if path == "/" else params)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "no-store" in answer.headers["cache-control"]
        assert answer.headers["x-accel-buffering"] == "no"


async def test_an_idle_stream_has_heartbeats(tmp_path: Path) -> None:
    """Comments are sent during silence: proxies keep the connection, and clients ignore them."""
    settings = ServerSettings.of({}, heartbeat_stream_seconds=0.05)
    async with talking(agent(settings=settings)) as client:
        asked = rpc("SendStreamingMessage", sending(f"until {tmp_path}/go"))
        beats, data = 0, 0
        async with client.stream("POST", "/", json=asked) as response:
            async for line in response.aiter_lines():
                beats += line.startswith(":")
                data += line.startswith("data: ")
                if beats == 3:
                    (tmp_path / "go").touch()
        assert (beats >= 3, data) == (True, 4)


@pytest.mark.parametrize("text", ["quiet 3", "steps 6"])
async def test_heartbeats_are_measured_from_the_last_byte_sent(text: str) -> None:
    """Neither the poll of the log nor internal entries restart the timer."""
    async with talking(agent(settings=ServerSettings.of({}, heartbeat_stream_seconds=1.2))) as client:
        asked = rpc("SendStreamingMessage", sending(text))
        async with client.stream("POST", "/", json=asked) as response:
            lines = [line async for line in response.aiter_lines()]
        assert sum(line.startswith(":") for line in lines) >= 2
        assert "TASK_STATE_COMPLETED" in lines[-2] + lines[-1]


@pytest.mark.parametrize("path", ["/tasks/{}:subscribe", "/v1/tasks/{}:subscribe", "/keelbolt/v1/tasks/{}/events"])
async def test_a_resumed_stream_opens_and_has_heartbeats_while_nothing_is_new(path: str) -> None:
    """A reader that has all events gets the response headers at once, and heartbeats."""
    settings = ServerSettings.of({}, heartbeat_stream_seconds=1.2, operators="loopback")
    async with talking(agent(settings=settings)) as client:
        asked = {**sending("quiet 4"), "configuration": {"returnImmediately": True}}
        task_id = (await client.post("/", json=rpc("SendMessage", asked))).json()["result"]["task"]["id"]
        headers = {"Last-Event-ID": "4"}
        async with client.stream("GET", path.format(task_id), headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            lines = [line async for line in response.aiter_lines()]
        assert sum(line.startswith(":") for line in lines) >= 3
        assert sum(line.startswith("data:") for line in lines) == 2


async def test_readers_of_one_task_see_the_same(tmp_path: Path) -> None:
    """Three readers, one of which leaves early: the others get every event, in one order."""
    server = agent()
    async with talking(server) as client:
        asked = {**sending(f"until {tmp_path}/go"), "configuration": {"returnImmediately": True}}
        task_id = (await client.post("/", json=rpc("SendMessage", asked))).json()["result"]["task"]["id"]

        async def read(limit: int) -> list[Any]:
            found = []
            async with client.stream("GET", f"/tasks/{task_id}:subscribe") as response:
                async for event in events(response):
                    found.append(event)
                    if len(found) == limit:
                        break
            return found

        readers = [asyncio.create_task(read(limit)) for limit in (99, 99, 1)]
        [only] = await readers[2]
        await until(lambda: open_streams(server) == 2)
        (tmp_path / "go").touch()
        first, second = await readers[0], await readers[1]
        assert first == second
        assert first[0] == only
        assert len(first) == 3
        await until(lambda: open_streams(server) == 0)


@pytest.mark.parametrize("path", ["/", "/message:stream"])
async def test_a_disconnect_cancels_nothing(path: str, tmp_path: Path) -> None:
    """A client that disconnects, in a stream or in a blocking send, does not cancel its task."""
    server = agent()
    async with talking(server) as client:
        params = sending(f"until {tmp_path}/go")
        asked = rpc("SendStreamingMessage", params) if path == "/" else params
        client.headers["Idempotency-Key"] = "k"
        async with client.stream("POST", path, json=asked) as response:
            _, first = await anext(events(response))
        await until(lambda: open_streams(server) == 0)
        with contextlib.suppress(httpx2.TimeoutException):
            await client.post("/", json=rpc("SendMessage", params), timeout=0.2)
        (tmp_path / "go").touch()
        done = (await client.post("/", json=rpc("SendMessage", params))).json()["result"]["task"]
        assert (done["id"], done["status"]["state"]) == (first["task"]["id"], "TASK_STATE_COMPLETED")


async def test_one_owner_can_not_take_all_streams() -> None:
    """The limit of one owner does not affect another owner."""
    server = agent(settings=ServerSettings.of({}, streams_each=1), auth=authenticator())
    ada, bob = [dict(bearer(name)) for name in ("ada", "bob")]
    async with talking(server) as client:
        asked = rpc("SendStreamingMessage", sending("wait"))
        async with client.stream("POST", "/", json=asked, headers=ada) as response:
            reading = events(response)
            await anext(reading)
            refused = await client.post("/", json=rpc("SendStreamingMessage", sending("echo", "m2")), headers=ada)
            assert refused.status_code == 503
            allowed = await client.post("/", json=rpc("SendStreamingMessage", sending("echo", "m2")), headers=bob)
            assert "TASK_STATE_COMPLETED" in allowed.text
        await until(lambda: open_streams(server) == 0)
        again = await client.post("/", json=rpc("SendStreamingMessage", sending("echo", "m3")), headers=ada)
        assert "TASK_STATE_COMPLETED" in again.text


async def test_too_many_streams(tmp_path: Path) -> None:
    """Beyond the limit, every binding returns 503 with Retry-After, and no task. A closed stream frees its place."""
    server = agent(settings=ServerSettings.of({}, streams=1))
    async with talking(server) as client:
        asked = rpc("SendStreamingMessage", sending(f"until {tmp_path}/go"))
        async with client.stream("POST", "/", json=asked) as response:
            reading = events(response)  # an unreferenced reader closes its connection
            _, first = await anext(reading)
            refused = [
                await client.post("/", json=rpc("SendStreamingMessage", sending("echo", "m2"))),
                await client.post("/message:stream", json=sending("echo", "m2")),
                await client.post("/", json=rpc("SubscribeToTask", {"id": first["task"]["id"]})),
                await client.get(f"/v1/tasks/{first['task']['id']}:subscribe"),
            ]
            for answer in refused:
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
                assert "error" in answer.json()
            listed = (await client.get("/tasks")).json()
            assert listed["totalSize"] == 1
        await until(lambda: open_streams(server) == 0)
        assert len(await streamed(client, "echo again", "m3")) == 4


@pytest.mark.parametrize(("text", "state"), [("ask", "INPUT_REQUIRED"), ("fail so", "FAILED"), ("reject", "REJECTED")])
async def test_a_stream_ends_with_the_turn(text: str, state: str) -> None:
    async with talking(agent()) as client:
        found = await streamed(client, text)
        assert found[-1][1]["statusUpdate"]["status"]["state"] == f"TASK_STATE_{state}"


async def test_a_follow_up_streams_its_turn() -> None:
    """The stream of a message that continues a task begins with the task as committed, and shows the new turn."""
    async with talking(agent()) as client:
        asked = (await streamed(client, "ask"))[0][1]["task"]
        params = sending("Ada", "m2", taskId=asked["id"])
        answer = await client.post("/message:stream", json=params)
        found = [event async for _, event in events(answer)]
        assert found[0]["task"]["id"] == asked["id"]
        assert found[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_stream_that_repeats_a_message(tmp_path: Path) -> None:
    """The same message streamed twice is one task; the second reader gets the current task, then the same end."""
    async with talking(agent()) as client:
        client.headers["Idempotency-Key"] = "k"
        asked = rpc("SendStreamingMessage", sending(f"until {tmp_path}/go"))
        async with client.stream("POST", "/", json=asked) as one, client.stream("POST", "/", json=asked) as two:
            first, second = events(one), events(two)
            ids = {(await anext(reader))[1]["task"]["id"] for reader in (first, second)}
            assert len(ids) == 1
            (tmp_path / "go").touch()
            ends = [[event async for event in reader][-1] for reader in (first, second)]
        assert ends[0] == ends[1]
        again = await streamed(client, f"until {tmp_path}/go")
        assert [next(iter(event)) for _, event in again] == ["task"]


async def test_a_stream_that_repeats_a_message_of_a_task_that_waits() -> None:
    """The stream shows the task and ends, like the first one: no event follows before the user answers."""
    async with asyncio.timeout(20), talking(agent()) as client:
        first = await streamed(client, "ask", key="k")
        again = await streamed(client, "ask", key="k")
        assert [next(iter(event)) for _, event in again] == ["task"]
        task = again[0][1]["task"]
        assert (task["id"], task["status"]["state"]) == (first[0][1]["task"]["id"], "TASK_STATE_INPUT_REQUIRED")


async def test_with_cancel_on_disconnect_leaving_cancels() -> None:
    """A client that leaves the stream of its own message cancels the task; a client that only reads does not."""
    server = agent(settings=ServerSettings.of({}, cancel_on_disconnect=True))
    async with talking(server) as client:
        client.headers["Idempotency-Key"] = "k"
        asked = rpc("SendStreamingMessage", sending("wait"))
        async with client.stream("POST", "/", json=asked) as response:
            reading = events(response)
            task_id = (await anext(reading))[1]["task"]["id"]
            async with client.stream("GET", f"/tasks/{task_id}:subscribe") as other:
                await anext(events(other))
            await until(lambda: open_streams(server) == 1)
            assert (await client.get(f"/tasks/{task_id}")).json()["status"]["state"] == "TASK_STATE_WORKING"
        done = (await client.post("/", json=rpc("SendMessage", sending("wait")))).json()["result"]["task"]
        assert (done["id"], done["status"]["state"]) == (task_id, "TASK_STATE_CANCELED")


async def test_a_reader_that_stalls_delays_no_other() -> None:
    """The task ends and others continue while one reader stalls; when it reads again, it gets every event."""
    count = 20_000
    server = agent()
    async with served(server) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        port = int(url.rpartition(":")[2])
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        await asyncio.get_running_loop().sock_connect(slow, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=slow, limit=4096)
        body = json.dumps(rpc("SendStreamingMessage", sending(f"count {count}"))).encode()
        head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        done = (await client.post("/", json=rpc("SendMessage", sending(f"count {count}")))).json()["result"]["task"]
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        assert open_streams(server) == 1
        found = 0
        async with asyncio.timeout(60):
            while line := await reader.readline():
                found += line.startswith(b"data: ") and b"artifactUpdate" in line
                if b"TASK_STATE_COMPLETED" in line:
                    break
        assert found == count
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("storage", ["memory:", "sqlite:///{}/tasks.db"])
async def test_a_follow_up_stream_begins_with_the_task_as_committed(storage: str, tmp_path: Path) -> None:
    """Even if the turn ends quickly, the stream has the submitted task with the message, then every update."""
    async with talking(agent(storage.format(tmp_path))) as client:
        for number in range(30):
            asked = (await client.post("/", json=rpc("SendMessage", sending("ask", f"{number}")))).json()
            task = asked["result"]["task"]
            more = sending("echo it", f"{number}.1", taskId=task["id"])
            async with client.stream("POST", "/", json=rpc("SendStreamingMessage", more)) as response:
                found = [event async for event in events(response)]
            opened = found[0][1]["task"]
            assert opened["status"]["state"] == "TASK_STATE_SUBMITTED"
            assert opened["history"][-1]["messageId"] == f"{number}.1"
            assert [next(iter(event)) for _, event in found[1:]] == ["statusUpdate", "artifactUpdate", "statusUpdate"]
            states = [event["statusUpdate"]["status"]["state"] for _, event in found[1:] if "statusUpdate" in event]
            assert states == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
            seqs = [seq for seq, _ in found]
            assert seqs == sorted({seq for seq in seqs if seq is not None})


async def test_a_follow_up_stream_to_a_running_task(tmp_path: Path) -> None:
    """The stream has the current task, the rest of its turn, and the turn of the message."""
    async with talking(agent()) as client:
        first = {**sending(f"until {tmp_path}/go"), "configuration": {"returnImmediately": True}}
        task = (await client.post("/", json=rpc("SendMessage", first))).json()["result"]["task"]
        more = rpc("SendStreamingMessage", sending("echo it", "m2", taskId=task["id"]))
        async with client.stream("POST", "/", json=more) as response:
            reading = events(response)
            _, opened = await anext(reading)
            (tmp_path / "go").touch()
            rest = [event async for _, event in reading]
        assert opened["task"]["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
        texts = [event["artifactUpdate"]["artifact"]["parts"][0]["text"] for event in rest if "artifactUpdate" in event]
        assert texts == ["there it is", "it"]
        assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
