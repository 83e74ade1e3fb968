"""GET /metrics: off by default, readable by Prometheus' own parser, and without data of callers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from keelbolt.tasks.settings import TaskSettings
from tests.integration.server.actor import agent
from tests.integration.server.serving import talking
from tests.integration.webhooks.receiver import receiving

ON = ServerSettings.of({}, metrics=True)
SECRET = "xyzzy-the-words-of-a-user"

OF_THE_STORE = {"keelbolt_queue_items", "keelbolt_queue_oldest_seconds", "keelbolt_workers"}

KEYS = {
    "active_tasks",
    "completed_tasks",
    "failed_tasks",
    "canceled_tasks",
    "total_requests",
    "uptime_seconds",
    "sse_active_streams",
    "push_notifications_sent",
    "push_notifications_failed",
}


async def send(client: httpx2.AsyncClient, message_id: str, text: str, *, now: bool = False) -> dict[str, Any]:
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"message": message, "configuration": {"returnImmediately": now}}
    task: dict[str, Any] = (await client.post("/message:send", json=body)).json()["task"]
    return task


async def some_work(client: httpx2.AsyncClient) -> list[str]:
    """Create tasks of every kind, a stream, and failing requests; return the callers' data in them."""
    done = await send(client, "id-1", f"echo {SECRET}")
    failed = await send(client, "id-2", f"fail {SECRET}")
    waiting = await send(client, "id-3", "wait", now=True)
    await client.post(f"/tasks/{waiting['id']}:cancel")
    await client.get(f"/tasks/{SECRET}")
    message = {"messageId": "id-4", "role": "ROLE_USER", "parts": [{"text": "count 3"}]}
    await client.post("/message:stream", json={"message": message})
    return [SECRET, "id-1", done["id"], done["contextId"], failed["id"], waiting["id"]]


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the parsed samples of Prometheus: name and labels to value."""
    return {
        (sample.name, *(str(value) for name, value in sorted(sample.labels.items()) if name != "process")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_off_by_default() -> None:
    async with talking(agent()) as client:
        answer = await client.get("/metrics")
        assert answer.status_code == 404
        assert (await client.get("/metrics", headers={"Accept": "application/json"})).status_code == 404


async def test_prometheus_reads_it() -> None:
    async with talking(agent(settings=ON)) as client:
        await some_work(client)
        answer = await client.get("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        found = samples(answer.text)
    assert found["keelbolt_requests_total", "SendMessage", "ok"] == 3
    assert found["keelbolt_requests_total", "GetTask", "TASK_NOT_FOUND"] == 1
    assert found["keelbolt_requests_total", "SendStreamingMessage", "ok"] == 1
    assert found["keelbolt_request_duration_seconds_count", "SendMessage"] == 3
    assert found["keelbolt_request_duration_seconds_bucket", "+Inf", "SendMessage"] == 3
    assert found["keelbolt_request_duration_seconds_sum", "SendMessage"] > 0
    states = {key[1]: value for key, value in found.items() if key[0] == "keelbolt_tasks_total"}
    assert {state: states[state] for state in ("completed", "failed", "canceled")} == {
        "completed": 2,
        "failed": 1,
        "canceled": 1,
    }
    assert found["keelbolt_streams_open",] == 0
    assert found["keelbolt_uptime_seconds",] > 0


async def test_the_buckets_are_cumulative() -> None:
    async with talking(agent(settings=ON)) as client:
        await some_work(client)
        found = samples((await client.get("/metrics")).text)
    by_bound = sorted(
        (float(key[1]), value)
        for key, value in found.items()
        if key[0] == "keelbolt_request_duration_seconds_bucket" and key[2] == "SendMessage"
    )
    counts = [value for _, value in by_bound]
    assert counts == sorted(counts)
    assert len(counts) == 15


@pytest.mark.parametrize("way", [{"headers": {"Accept": "application/json"}}, {"params": {"format": "json"}}], ids=str)
async def test_nine_plain_numbers_on_request(way: dict[str, Any]) -> None:
    async with talking(agent(settings=ON)) as client:
        await some_work(client)
        async with client.stream("GET", "/keelbolt/v1/events"):
            answer = await client.get("/metrics", **way)
        assert answer.headers["content-type"] == "application/json"
        found = answer.json()
    assert set(found) == KEYS
    assert (found["completed_tasks"], found["failed_tasks"], found["canceled_tasks"]) == (2, 1, 1)
    assert found["total_requests"] == 6
    assert (found["active_tasks"], found["sse_active_streams"]) == (0, 1)
    assert found["uptime_seconds"] > 0
    assert (found["push_notifications_sent"], found["push_notifications_failed"]) == (0, 0)


async def test_running_tasks_are_counted_immediately() -> None:
    async with talking(agent(settings=ON)) as client:
        task = await send(client, "id-1", "wait", now=True)
        async with asyncio.timeout(20):
            while (await client.get("/metrics?format=json")).json()["active_tasks"] != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await client.post(f"/tasks/{task['id']}:cancel")
        found = (await client.get("/metrics?format=json")).json()
        assert (found["active_tasks"], found["canceled_tasks"]) == (0, 1)


async def test_it_contains_no_data_of_callers() -> None:
    async with talking(agent(settings=ON)) as client:
        theirs = await some_work(client)
        for accept in ("text/plain", "application/json"):
            text = (await client.get("/metrics", headers={"Accept": accept})).text
            assert not [word for word in theirs if word in text]


async def test_values_of_a_process_are_labelled_and_values_of_the_store_are_not() -> None:
    """Scrapes of several processes at one port add up: counters are per process, queues are shared by all."""
    async with talking(agent(settings=ON)) as client:
        waiting = await send(client, "id-1", "wait", now=True)
        text = (await client.get("/metrics")).text
        await client.post(f"/tasks/{waiting['id']}:cancel")
    found = list(text_string_to_metric_families(text))
    for family in found:
        for sample in family.samples:
            assert ("process" in sample.labels) == (family.name not in OF_THE_STORE), sample
    queues = {
        (sample.labels["queue"], sample.labels["state"]): sample.value
        for family in found
        if family.name == "keelbolt_queue_items"
        for sample in family.samples
    }
    assert queues["tasks", "held"] == 1
    names = {family.name for family in found}
    assert {"keelbolt_takeovers", "keelbolt_dead_letters", "keelbolt_lease_losses", "keelbolt_storage_outages"} <= names


async def test_the_durations_of_tasks() -> None:
    async with talking(agent(settings=ON)) as client:
        await some_work(client)
        found = samples((await client.get("/metrics")).text)
    assert found["keelbolt_task_duration_seconds_count", "completed"] == 2
    assert found["keelbolt_task_duration_seconds_count", "failed"] == 1


def test_scrapes_of_two_processes_add_up(tmp_path: Path) -> None:
    """A scrape reaches an arbitrary process; the label separates the counters, and their sum is correct."""
    (tmp_path / "agent.py").write_text("async def echo(ctx):\n    return ctx.user_text\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--port", str(port), "--processes", "2", "--metrics")
    command = [sys.executable, "-m", "keelbolt", "serve", "agent:echo", *options]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the process serves
        url = f"http://127.0.0.1:{port}"
        count, found, deadline = 0, dict[str, float](), time.monotonic() + 60
        while len(found) < 2 or sum(found.values()) < count:
            assert time.monotonic() < deadline
            if len(found) < 2:
                message = {"messageId": str(count), "role": "ROLE_USER", "parts": [{"text": "x"}]}
                assert httpx2.post(f"{url}/message:send", json={"message": message}).status_code == 200
                count += 1
            for family in text_string_to_metric_families(httpx2.get(f"{url}/metrics").text):
                for sample in family.samples:
                    if sample.name == "keelbolt_requests_total":
                        found[sample.labels["process"]] = sample.value
        process.terminate()
        assert process.wait(30) == 0
    assert sum(found.values()) == count


async def test_steps_webhooks_commits_and_the_store(tmp_path: Path) -> None:
    """A scrape of an agent on SQLite that ran a step, delivered a webhook, and has a waiting task."""
    gate = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        await ctx.step("double", lambda: 2, idempotent=True)
        if ctx.user_text == "hold":
            await gate.wait()
        await ctx.complete("done")

    card = AgentCardConfig(name="x", description="x", capabilities=CapabilitiesConfig(push_notifications=True))
    settings = ServerSettings.of({}, metrics=True, webhook_loopback=True)
    server = A2AServer(
        worker=worker,
        agent_card=card,
        storage=f"sqlite:///{tmp_path / 'a.db'}",
        settings=settings,
        task_settings=TaskSettings.of({}, concurrency=1),
    )
    async with receiving() as receiver, talking(server) as client:
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "go"}]}
        push = {"taskPushNotificationConfig": {"url": receiver.url}}
        assert (await client.post("/message:send", json={"message": message, "configuration": push})).status_code == 200
        async with asyncio.timeout(30):
            while not receiver.arrivals:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        held, waiting = await send(client, "2", "hold", now=True), await send(client, "3", "hold", now=True)
        await asyncio.sleep(1.2)  # the count of the queues is cached for a second
        found = samples((await client.get("/metrics")).text)
        gate.set()
        for task in (held, waiting):
            await client.post(f"/tasks/{task['id']}:subscribe")
    assert found["keelbolt_step_duration_seconds_count", "done"] == 2
    assert found["keelbolt_webhooks_total", "sent"] >= 1
    assert found["keelbolt_webhook_lag_seconds_count",] == found["keelbolt_webhooks_total", "sent"]
    assert found["keelbolt_commit_duration_seconds_count",] == found["keelbolt_commit_batch_size_count",] > 0
    assert found["keelbolt_queue_items", "tasks", "waiting"] == found["keelbolt_queue_items", "tasks", "held"] == 1
    assert found["keelbolt_queue_oldest_seconds", "tasks"] >= 1
    assert (found["keelbolt_workers",], found["keelbolt_storage_up",]) == (2, 1)


async def test_each_scrape_has_its_own_connection() -> None:
    """Processes that share a port are reached in turn; a scraper that keeps its connection would see only one."""
    async with talking(agent(settings=ON)) as client:
        assert (await client.get("/metrics")).headers["connection"] == "close"
