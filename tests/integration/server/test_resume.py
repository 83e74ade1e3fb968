"""A broken stream continues after the last received event, in any process; nothing is lost or repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keelbolt.kernel import open_storage
from keelbolt.protocol.extensions import RESUME
from keelbolt.tasks.families import EVENTS, FAMILIES
from keelbolt.tasks.notes import WIRE_KINDS
from keelbolt.tasks.sweep import trim_log
from tests.integration.server.actor import agent
from tests.integration.server.asgi import ask, call
from tests.integration.server.process import running
from tests.integration.server.reading import events, resumed, rpc, sending, streamed
from tests.integration.server.serving import talking

PARTITION = "~anonymous"


async def log_of(url: str, task_id: str) -> list[tuple[int, Any]]:
    """Return the entries that clients get, each with seq and JSON, read from the storage itself."""
    found: list[tuple[int, Any]] = []
    async with open_storage(url, declare=FAMILIES) as kernel:
        while True:
            page = await kernel.read_log(PARTITION, EVENTS, task_id, after=found[-1][0] if found else 0)
            new = [(entry.seq, entry) for entry in page.entries]
            found += new
            if not new or page.entries[-1].seq >= page.head:
                break
    return [(seq, json.loads(entry.data)) for seq, entry in found if entry.kind in WIRE_KINDS]


def bare(event: Any) -> Any:
    """Return an event without the fields that the log does not repeat in each entry."""
    [value] = event.values()
    return {name: member for name, member in value.items() if name not in ("taskId", "contextId")}


async def test_cut_at_every_event_and_resumed_elsewhere(tmp_path: Path) -> None:
    """One process streams 300 chunks; after any last received event, another process continues exactly."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with running(url) as one, running(url) as two, one.client() as first, two.client() as second:
        whole = await streamed(first, "count 300")
        task = whole[0][1]["task"]
        log = await log_of(url, task["id"])
        assert [seq for seq, _ in whole[1:]] == [seq for seq, _ in log if seq > (whole[0][0] or 0)]
        assert [bare(event) for _, event in whole[1:]] == [data for seq, data in log if seq > (whole[0][0] or 0)]
        assert len(whole) >= 302
        for cut, (seq, _) in enumerate(whole, 1):
            assert seq is not None
            rest = await resumed(second, task["id"], seq)
            assert whole[:cut] + rest == whole


async def test_a_live_stream_that_moves_between_processes(tmp_path: Path) -> None:
    """A reader gets one event per connection, from two processes in turn, while the task runs."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with running(url) as one, running(url) as two, one.client() as first, two.client() as second:
        asked = {**sending("count 300 0.003"), "configuration": {"returnImmediately": True}}
        task = (await first.post("/", json=rpc("SendMessage", asked))).json()["result"]["task"]
        found: list[tuple[int | None, Any]] = []
        turn = 0
        while not found or "COMPLETED" not in json.dumps(found[-1][1].get("statusUpdate", "")):
            turn += 1
            after = (found[-1][0] or 0) if found else 0
            found += await resumed(second if turn % 2 else first, task["id"], after, limit=1)
        log = await log_of(url, task["id"])
        assert [(seq, bare(event)) for seq, event in found] == log
        assert turn == len(log) >= 302


@pytest.mark.parametrize("by", ["header", "query", "0.3", "0.3 REST"])
async def test_every_binding_resumes(by: str) -> None:
    """JSON-RPC and REST resume by Last-Event-ID or by afterSeq, in both versions."""
    async with talking(agent()) as client:
        whole = await streamed(client, "count 5")
        task_id = whole[0][1]["task"]["id"]
        after = whole[3][0]
        headers = {"Last-Event-ID": str(after)}
        if by == "header":
            answer = await client.get(f"/tasks/{task_id}:subscribe", headers=headers)
        elif by == "query":
            answer = await client.post(f"/tasks/{task_id}:subscribe?afterSeq={after}")
        elif by == "0.3":
            answer = await client.post("/", json=rpc("tasks/resubscribe", {"id": task_id}), headers=headers)
        else:
            answer = await client.get(f"/v1/tasks/{task_id}:subscribe", headers=headers)
        rest = [event async for event in events(answer)]
        assert [seq for seq, _ in rest] == [seq for seq, _ in whole[4:]]
        if by in ("header", "query"):
            assert rest == whole[4:]
        elif by == "0.3":
            assert [event["kind"] for _, event in rest] == ["artifact-update"] * (len(rest) - 1) + ["status-update"]
            assert rest[-1][1]["final"] is True


async def test_without_an_event_id_the_specification_applies(tmp_path: Path) -> None:
    """The stream has the current task, then later events; an ended task can't be subscribed to."""
    async with talking(agent()) as client:
        asked = {**sending(f"until {tmp_path}/go"), "configuration": {"returnImmediately": True}}
        task_id = (await client.post("/", json=rpc("SendMessage", asked))).json()["result"]["task"]["id"]
        async with client.stream("GET", f"/tasks/{task_id}:subscribe") as response:
            found = []
            async for _, event in events(response):
                found.append(event)
                (tmp_path / "go").touch()
        assert found[0]["task"]["id"] == task_id
        assert [next(iter(event)) for event in found] == ["task", "artifactUpdate", "statusUpdate"]
        over = await client.get(f"/tasks/{task_id}:subscribe")
        assert over.status_code == 400
        assert over.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"


@pytest.mark.parametrize("path", ["/", "/v1"])
async def test_0_3_streams_an_ended_task(path: str) -> None:
    """In 0.3 the stream of an ended task has the task and the end."""
    async with talking(agent()) as client:
        over = (await client.post("/", json=rpc("SendMessage", sending("echo")))).json()["result"]["task"]
        if path == "/":
            answer = await client.post("/", json=rpc("tasks/resubscribe", {"id": over["id"]}))
        else:
            answer = await client.get(f"/v1/tasks/{over['id']}:subscribe")
        [(_, event)] = [event async for event in events(answer)]
        assert (event if path == "/" else event["task"])["id"] == over["id"]


@pytest.mark.parametrize("place", ["soon", "-1", "1.5", "9" * 30, "١"])
async def test_an_invalid_event_id(place: str) -> None:
    async with agent() as server:
        over = (await call(server.app, "SendMessage", sending("echo"))).json["result"]["task"]
        raw = [(b"last-event-id", place.encode())]
        reply = await call(server.app, "SubscribeToTask", {"id": over["id"]}, raw_headers=raw)
        assert reply.json["error"]["code"] == -32602
        assert "Last-Event-ID" in reply.json["error"]["message"]


async def test_an_event_id_beyond_the_end_is_ignored() -> None:
    """An event id of another or a lost storage gets the same response as no event id."""
    async with agent() as server:
        asked = (await call(server.app, "SendMessage", sending("ask"))).json["result"]["task"]
        path = f"/tasks/{asked['id']}:subscribe"
        headers = [("last-event-id", "5000")]
        reply = await ask(server.app, "GET", path, headers=headers, enough=lambda body: b"\n\n" in body)
        assert next(iter(reply.events[0])) == "task"


@pytest.mark.parametrize("method", ["SubscribeToTask", "tasks/resubscribe", "rest"])
async def test_the_event_id_may_be_in_the_parameters(method: str) -> None:
    """With the extension, the metadata may have the id; a header takes precedence, and a non-number is refused."""
    async with agent() as server:
        over = (await call(server.app, "SendMessage", sending("count 5"))).json["result"]["task"]

        async def after(place: Any, **headers: str) -> Any:
            params = {"id": over["id"], "metadata": {RESUME: {"afterSeq": place}}}
            named = [(name.replace("_", "-"), value) for name, value in headers.items()]
            if method != "rest":
                return await call(server.app, method, params, headers=named)
            path = f"/tasks/{over['id']}:subscribe"
            typed = [("content-type", "application/json"), *named]
            return await ask(server.app, "POST", path, headers=typed, body=json.dumps(params).encode())

        whole = await after(3)
        assert len(whole.events) > 3
        header = await after(None, last_event_id="3")
        assert whole.body == header.body
        assert (await after("3")).body == whole.body
        assert len((await after(3, last_event_id="5")).events) == len(whole.events) - 2
        wrong: list[Any] = [-1, 1.5, True, "x", [], {}]
        for place in wrong:
            reply = await after(place)
            assert reply.status == 400 or b"-32602" in reply.body


async def test_trimmed_entries_are_replaced_by_the_task() -> None:
    """Below the floor of the log, the stream sends the current task with the id of the head instead of the entries."""
    async with agent() as server:
        app = server.app
        over = (await call(app, "SendMessage", sending("count 20"))).json["result"]["task"]
        assert await trim_log(
            server.routes.service.engine.store, server.routes.service.engine.kernel.scoped(PARTITION), over["id"]
        )
        reply = await call(app, "SubscribeToTask", {"id": over["id"]}, headers=[("last-event-id", "3")])
        [event] = reply.events
        assert event["result"]["task"]["status"] == over["status"]
        assert event["result"]["task"]["artifacts"] == over["artifacts"]
        assert event["result"]["task"]["metadata"] == {RESUME: {"gap": True}}
        assert "metadata" not in (await call(app, "GetTask", {"id": over["id"]})).json["result"]
        head = reply.body.splitlines()[0].removeprefix(b"id: ").decode()
        reply = await call(app, "SubscribeToTask", {"id": over["id"]}, headers=[("last-event-id", head)])
        assert reply.events == []


async def test_ids_are_the_numbers_of_the_log() -> None:
    """Every event has an id, ids increase, and the first is the task's own."""
    async with talking(agent()) as client:
        whole = await streamed(client, "count 10")
        ids = [seq for seq, _ in whole]
        assert ids == sorted({seq for seq in ids if seq is not None})
        task_id = whole[0][1]["task"]["id"]
        assert await resumed(client, task_id, ids[0] or 0) == whole[1:]
        assert await resumed(client, task_id, ids[-1] or 0) == []
