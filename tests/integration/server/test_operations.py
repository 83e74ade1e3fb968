"""The operations API under /keelbolt/v1/: every route of its table behaves as its summary describes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from keelbolt.auth import ClaimMapping
from keelbolt.auth.principal import ANONYMOUS
from keelbolt.kernel import open_storage
from keelbolt.operations.table import PREFIX, ROUTES
from keelbolt.operations.task_lists import ChangeReader
from keelbolt.protocol.card import AgentCardConfig
from keelbolt.protocol.types import TaskState
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import Message, Part, Role, TaskContext, TaskEngine
from keelbolt.tasks.families import QUEUE, TASKS
from keelbolt.tasks.record import CurrentTurn, TaskRecord
from keelbolt.tasks.sweep import trim_log
from tests.integration.server import actor
from tests.integration.server.actor import act
from tests.integration.server.people import authenticator, bearer
from tests.integration.server.serving import talking
from tests.integration.tasks.stage import until
from tests.integration.webhooks.receiver import fine, receiving

CARD = AgentCardConfig(name="Actor", description="Does as asked")
OPERATED = ServerSettings.of({}, operators="loopback")
LOOPBACK = replace(OPERATED, webhook_loopback=True)
NOTHING = (TaskState.working, b"{}", 0, 0, CurrentTurn(1, "m"))
HOOK = {"url": "http://127.0.0.1:9/hook", "id": "mine"}  # no server listens there
MESSAGES = iter(range(1_000_000))


def agent(storage: str = "memory:", settings: ServerSettings = OPERATED) -> A2AServer:
    """An agent whose operators are local users."""
    return actor.agent(storage, settings=settings)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store on disk."""
    return f"sqlite:///{tmp_path}/agent.db"


async def send(
    client: httpx2.AsyncClient, text: str, *, now: bool = False, headers: dict[str, str] | None = None, **ids: str
) -> dict[str, Any]:
    """Create a task and wait for the end of its turn; with ``now``, return at once."""
    message = {"messageId": f"m-{next(MESSAGES)}", "role": "ROLE_USER", "parts": [{"text": text}], **ids}
    body = {"message": message, "configuration": {"returnImmediately": now}}
    answer = await client.post("/message:send", json=body, headers=headers)
    task: dict[str, Any] = answer.json()["task"]
    return task


async def get(client: httpx2.AsyncClient, path: str, **query: Any) -> Any:
    answer = await client.get(PREFIX + path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post(client: httpx2.AsyncClient, path: str, **body: Any) -> Any:
    answer = await client.post(PREFIX + path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def states(client: httpx2.AsyncClient, task_id: str, wanted: str) -> dict[str, Any]:
    """Wait until the task has this state; return the task."""
    async with asyncio.timeout(20):
        while True:
            shown: dict[str, Any] = await get(client, f"/tasks/{task_id}")
            if shown["task"]["status"]["state"] == f"TASK_STATE_{wanted}":
                return shown
            await asyncio.sleep(0.02)


@asynccontextmanager
async def followed(
    client: httpx2.AsyncClient, path: str, headers: dict[str, str] | None = None, **query: Any
) -> AsyncIterator[AsyncIterator[tuple[str | None, Any]]]:
    """Return the events of a stream, each with its id."""
    async with client.stream("GET", PREFIX + path, params=query, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")

        async def events() -> AsyncIterator[tuple[str | None, Any]]:
            seq = None
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    seq = value
                elif name == "data":
                    yield seq, json.loads(value)

        yield events()


# ------------------------------------------------------------------------------------------------------------ reads


async def test_tasks_are_listed_with_filters_and_totals(url: str) -> None:
    async with talking(agent(url)) as client:
        for text in ("echo 1", "echo 2", "ask", "fail no"):
            await send(client, text)
        there = await send(client, "echo 3", contextId="room")

        everything = await get(client, "/tasks")
        assert (everything["total"], everything["exact"], everything["nextPageToken"]) == (5, True, "")
        assert everything["tasks"][0]["id"] == there["id"]  # the newest status first
        assert everything["tasks"][0]["turn"] == 1
        counts = {state: count for state, count in everything["states"].items() if count}
        assert counts == {"completed": 3, "input_required": 1, "failed": 1}

        done = await get(client, "/tasks", state="completed")
        assert {task["status"]["state"] for task in done["tasks"]} == {"TASK_STATE_COMPLETED"}
        assert (done["total"], done["states"]) == (3, everything["states"])  # the states count all tasks
        assert [task["id"] for task in (await get(client, "/tasks", context="room"))["tasks"]] == [there["id"]]
        later = there["status"]["timestamp"]
        assert [task["id"] for task in (await get(client, "/tasks", since=later))["tasks"]] == [there["id"]]

        newest_first = [task["id"] for task in everything["tasks"]]
        assert await paged(client, 5) == await paged(client, 5, sort="-updated") == newest_first
        assert await paged(client, 5, sort="updated") == newest_first[::-1]
        assert await paged(client, 5, sort="updated", q="echo") == [
            task["id"] for task in reversed(everything["tasks"]) if "echo" in task["said"]
        ]


async def paged(client: httpx2.AsyncClient, total: int, **query: str) -> list[str]:
    """Return the ids of all pages, each of two tasks."""
    seen: list[str] = []
    token = ""
    while True:
        page = await get(client, "/tasks", pageSize=2, **query, **({"pageToken": token} if token else {}))
        assert page["total"] == total
        seen += [task["id"] for task in page["tasks"]]
        if not (token := page["nextPageToken"]):
            return seen


async def test_an_invalid_query_is_refused() -> None:
    async with talking(agent()) as client:
        for query in (
            "state=tired",
            "pageSize=0",
            "pageSize=101",
            "pageToken=made-up",
            "since=yesterday",
            "sort=created",
        ):
            answer = await client.get(f"{PREFIX}/tasks?{query}")
            assert answer.status_code == 400, query
            assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"


async def test_a_task_is_shown_with_its_steps_and_work() -> None:
    async def stepping(ctx: TaskContext) -> None:
        await ctx.step("fetch", fetched)
        await ctx.request_input("More?")

    async def fetched() -> dict[str, int]:
        return {"pages": 3}

    server = A2AServer(worker=stepping, agent_card=CARD, settings=OPERATED)
    async with talking(server) as client:
        task = await send(client, "go")
        shown = await get(client, f"/tasks/{task['id']}")
    assert shown["task"]["id"] == task["id"]
    assert shown["task"]["status"]["message"]["parts"] == [{"text": "More?"}]
    assert shown["steps"] == {"fetch": {"state": "done", "result": {"pages": 3}}}
    assert (shown["runs"], shown["turn"]["number"], shown["floor"]) == (1, 1, 0)
    assert (shown["cancelRequested"], shown["pendingMessages"], shown["work"]) == (False, 0, None)


async def test_a_running_task_names_its_holder() -> None:
    server = agent()
    async with talking(server) as client:
        task = await send(client, "wait", now=True)
        shown = await states(client, task["id"], "WORKING")
        runner = server.routes.service.engine.runner
        assert runner is not None
        assert (shown["work"]["state"], shown["work"]["holder"]) == ("held", runner.name)
        assert (shown["work"]["attempt"], shown["work"]["maxAttempts"]) == (1, 5)
        held = await get(client, "/work", state="held")
        assert [item["taskId"] for item in held["work"]] == [task["id"]]
        assert (await get(client, "/system"))["holders"] == {runner.name: 1}
        await post(client, f"/tasks/{task['id']}/cancel")


async def trimmed(server: A2AServer, task_id: str) -> None:
    """Trim the log of an ended task as a retention policy does."""
    assert await trim_log(
        server.routes.service.engine.store, server.routes.service.engine.tasks.scope(ANONYMOUS), task_id
    )


async def test_a_log_is_paged_and_reports_where_it_was_trimmed(url: str) -> None:
    server = agent(url)
    async with talking(server) as client:
        task = await send(client, "count 5")
        path = f"/tasks/{task['id']}/log"
        whole = await get(client, path)
        seqs = [entry["seq"] for entry in whole["entries"]]
        assert seqs == list(range(1, whole["head"] + 1))
        assert (whole["floor"], whole["gap"]) == (0, False)
        assert whole["entries"][0]["kind"] == "message"
        assert whole["entries"][0]["data"]["parts"] == [{"text": "count 5"}]
        page = await get(client, path, after=3, limit=2)
        assert [entry["seq"] for entry in page["entries"]] == [4, 5]

        await trimmed(server, task["id"])
        head = whole["head"]
        assert await get(client, path, after=2) == {"entries": [], "head": head, "floor": head, "gap": True}
        assert await get(client, path, after=head) == {"entries": [], "head": head, "floor": head, "gap": False}
        shown = await get(client, f"/tasks/{task['id']}")
        assert shown["floor"] == head
        assert "".join(part["text"] for part in shown["task"]["artifacts"][0]["parts"]) == "0 1 2 3 4 "


def without_time(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry without its time: a live reader gets the time of the write, not of the commit."""
    return {name: value for name, value in entry.items() if name != "at"}


async def test_a_log_is_followed_and_continued(url: str) -> None:
    server = agent(url)
    async with talking(server) as client:
        task = await send(client, "wait", now=True)
        path = f"/tasks/{task['id']}/events"
        seen: list[tuple[str | None, Any]] = []
        async with followed(client, path) as events:
            _, now = await anext(events)
        assert (now["snapshot"]["id"], now["gap"]) == (task["id"], False)
        async with followed(client, path, after=0) as events:
            async for seq, entry in events:
                assert seq == str(entry["seq"])
                seen.append((seq, entry))
                if entry["kind"] == "attempt":
                    await post(client, f"/tasks/{task['id']}/cancel", reason="enough")
        log = (await get(client, f"/tasks/{task['id']}/log"))["entries"]
        assert [without_time(entry) for _, entry in seen] == [without_time(entry) for entry in log]

        for after in range(1, len(log)):
            async with followed(client, path, headers={"Last-Event-ID": str(after)}) as events:
                assert [entry["seq"] async for _, entry in events] == [entry["seq"] for entry in log[after:]]
        async with followed(client, path, after=2) as events:
            assert [entry["seq"] async for _, entry in events] == [entry["seq"] for entry in log[2:]]

        await trimmed(server, task["id"])
        async with followed(client, path, headers={"Last-Event-ID": "1"}) as events:
            [(seq, entry)] = [event async for event in events]
        assert (seq, entry["seq"], entry["gap"]) == (str(len(log)), len(log), True)
        assert entry["snapshot"]["status"]["state"] == "TASK_STATE_CANCELED"


async def test_each_status_change_is_sent() -> None:
    async with talking(agent()) as client:
        await send(client, "echo before")
        seen: list[Any] = []
        async with asyncio.timeout(20), followed(client, "/events") as events:
            asked = await send(client, "ask")
            async for seq, task in events:
                assert seq is None
                seen.append((task["id"], task["status"]["state"]))
                if seen[-1] == (asked["id"], "TASK_STATE_INPUT_REQUIRED"):
                    await send(client, "Ada", taskId=asked["id"])
                if seen[-1] == (asked["id"], "TASK_STATE_COMPLETED"):
                    break
        assert (asked["id"], "TASK_STATE_INPUT_REQUIRED") in seen


async def test_changes_are_sent_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    server = agent()
    async with asyncio.timeout(20), talking(server) as client, followed(client, "/events") as events:
        before = await send(client, "ask")
        while (await anext(events))[1]["id"] != before["id"]:
            pass
        clock = server.routes.service.engine.store.clock
        wall = clock.wall
        monkeypatch.setattr(clock, "wall", lambda: wall() - 3600 * 1_000_000)
        after = await send(client, "ask")
        while (await anext(events))[1]["id"] != after["id"]:
            pass


async def test_many_watchers_cause_one_read_of_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    server = agent()
    async with asyncio.timeout(20), talking(server) as client, AsyncExitStack() as stack:
        kernel = server.routes.service.engine.kernel
        find, looks = kernel.find, 0

        async def counted(*args: Any, **more: Any) -> Any:
            nonlocal looks
            looks += 1
            return await find(*args, **more)

        monkeypatch.setattr(kernel, "find", counted)
        readers = [await stack.enter_async_context(followed(client, "/events")) for _ in range(10)]
        asked = await send(client, "ask")
        for reader in readers:
            while (await anext(reader))[1]["status"]["state"] != "TASK_STATE_INPUT_REQUIRED":
                pass
        assert asked["id"]
        assert looks <= 6


def test_a_reader_that_falls_behind_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader gets the changes before the first one that it missed, and none after it."""
    monkeypatch.setattr("keelbolt.operations.task_lists.BEHIND", 2)
    reader, changes = ChangeReader(), [TaskRecord(str(n), "c", *NOTHING) for n in range(4)]
    for change in changes[:3]:
        reader.tell(change)
    assert [reader.news.get_nowait() for _ in range(2)] == changes[:2]
    reader.tell(changes[3])
    assert (reader.lost, reader.news.empty()) == (True, True)


async def test_a_late_change_is_sent() -> None:
    """A slow commit, or one of a process whose clock is behind, has an older time than earlier changes."""
    server = agent()
    async with asyncio.timeout(20), talking(server) as client, followed(client, "/events") as events:
        newer = await send(client, "ask")
        while (await anext(events))[1]["status"]["state"] != "TASK_STATE_INPUT_REQUIRED":
            pass
        kernel = server.routes.service.engine.kernel
        stored = await kernel.get(ANONYMOUS.partition, TASKS, newer["id"])
        assert stored is not None
        record = TaskRecord.of(stored)
        record.task_id, record.updated = "late", record.updated - 500_000
        await kernel.commit(ANONYMOUS.partition, record.insert())
        assert (await anext(events))[1]["id"] == "late"


async def test_the_numbers_of_the_system_are_sent_when_they_change() -> None:
    async with asyncio.timeout(20), talking(agent()) as client, followed(client, "/system/events") as events:
        _, first = await anext(events)
        assert (first["process"]["running"], first["workers"] > 0) == (0, True)
        task = await send(client, "wait", now=True)
        _, second = await anext(events)
        assert (second["queues"]["tasks"]["held"], second["process"]["running"]) == (1, 1)
        await post(client, f"/tasks/{task['id']}/cancel")


async def test_webhooks_of_all_tasks_and_their_work() -> None:
    async with talking(agent(settings=LOOPBACK)) as client:
        tasks = [await send(client, "ask") for _ in range(2)]
        for task in tasks:
            made = await client.post(f"/tasks/{task['id']}/pushNotificationConfigs", json=HOOK)
            assert made.status_code == 200
        await send(client, "Ada", taskId=tasks[0]["id"])
        listed = await get(client, "/webhooks")
        assert {hook["taskId"] for hook in listed["webhooks"]} == {task["id"] for task in tasks}
        first = await get(client, "/webhooks", pageSize=1)
        assert (len(first["webhooks"]), listed["nextPageToken"], bool(first["nextPageToken"])) == (1, "", True)
        assert (await get(client, "/webhooks", state="failed"))["webhooks"] == []
        async with asyncio.timeout(20):
            while not (work := (await get(client, "/work", queue="webhooks"))["work"]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert (work[0]["taskId"], work[0]["configId"]) == (tasks[0]["id"], "mine")
        assert (await client.get(f"{PREFIX}/work?queue=other")).status_code == 400


async def test_a_context_is_erased() -> None:
    async with talking(agent()) as client:
        for text in ("echo 1", "echo 2"):
            await send(client, text, contextId="room")
        kept = await send(client, "echo 3")
        answer = await client.request("DELETE", f"{PREFIX}/tasks", params={"context": "room"})
        assert answer.json() == {"erased": 2}
        assert [task["id"] for task in (await get(client, "/tasks"))["tasks"]] == [kept["id"]]


PEOPLE: tuple[tuple[str, list[str]], ...] = (("ada", []), ("bob", []), ("olga", ["operator:all"]))


async def test_tasks_of_an_asked_tenant_are_reached() -> None:
    """The owner and operators reach such tasks; other callers do not."""
    auth = authenticator(claim_mapping=ClaimMapping(roles_claim="roles"))
    server = A2AServer(worker=act, agent_card=CARD, auth=auth, settings=OPERATED)
    ada, bob, olga = (dict(bearer(name, None, roles=roles)) for name, roles in PEOPLE)
    async with talking(server) as client:
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "ask"}]}}
        task = (await client.post("/acme/message:send", json=body, headers=ada)).json()["task"]

        async def shown(who: dict[str, str], **query: str) -> int:
            return (await client.get(f"{PREFIX}/tasks/{task['id']}", params=query, headers=who)).status_code

        assert await shown(ada, askedTenant="acme") == 200
        assert await shown(olga, owner="ada", askedTenant="acme") == 200
        assert await shown(ada) == await shown(bob, askedTenant="acme") == 404
        assert await shown(bob, owner="ada", askedTenant="acme") == await shown(olga, askedTenant="acme") == 404
        assert await shown(ada, askedTenant="acme", tenant="acme") == 400


async def test_an_inbox_shows_its_entries() -> None:
    async with talking(agent()) as client:
        task = await send(client, "wait", now=True)
        await states(client, task["id"], "WORKING")
        await post(client, f"/tasks/{task['id']}/steer", kind="inject", payload={"words": "hurry"}, reason="late")
        inbox = await get(client, f"/tasks/{task['id']}/inbox")
        assert inbox["head"] == 1
        entry = inbox["entries"][0]
        assert (entry["seq"], "hurry" in json.dumps(entry["data"])) == (1, True)
        await post(client, f"/tasks/{task['id']}/cancel")


async def test_webhooks_of_a_task_are_listed() -> None:
    async with talking(agent(settings=LOOPBACK)) as client:
        task = await send(client, "ask")
        await client.post(f"/tasks/{task['id']}/pushNotificationConfigs", json=HOOK)
        [found] = (await get(client, f"/tasks/{task['id']}/webhooks"))["webhooks"]
    assert (found["id"], found["url"]) == ("mine", "http://127.0.0.1:9/hook")
    assert (found["status"], found["delivered"]) == ("active", 0)
    assert found["cursor"] > 0


async def test_delivery_to_a_webhook_is_repeated() -> None:
    """A delivery that was given up is repeated from its cursor, or everything after an event, with the same ids."""
    settings = ServerSettings.of({}, webhook_loopback=True)
    async with receiving() as receiver, talking(agent(settings=settings)) as client:
        receiver.always(410)
        task = await send(client, "ask")
        path = f"/tasks/{task['id']}/webhooks"
        hook = {"url": receiver.url, "id": "mine", "token": "secret", "authentication": {"scheme": "Bearer"}}
        await client.post(f"/tasks/{task['id']}/pushNotificationConfigs", json=hook)
        await post(client, f"{path}/mine/replay", after=0)

        async def shows(name: str, value: object) -> bool:
            [found] = (await get(client, path))["webhooks"]
            assert "secret" not in json.dumps(found)
            return bool(found[name] == value)

        await until(lambda: shows("status", "failed"))
        receiver.answering = fine
        await post(client, f"{path}/mine/replay")
        await until(lambda: shows("delivered", 3))
        await post(client, f"{path}/mine/replay", after=0)
        await until(lambda: len(receiver.arrivals) == 7)
        assert receiver.seqs()[1:4] == receiver.seqs()[4:7]
        for wrong in ({"after": -1}, {"after": "x"}, {"after": True}):
            assert (await client.post(f"{PREFIX}{path}/mine/replay", json=wrong)).status_code == 400
        assert (await client.post(f"{PREFIX}{path}/other/replay", json={})).status_code == 404


# ---------------------------------------------------------------------------------------------------------- actions


async def test_a_task_is_cancelled_with_a_reason() -> None:
    async with talking(agent()) as client:
        task = await send(client, "wait", now=True)
        await states(client, task["id"], "WORKING")
        canceled = await post(client, f"/tasks/{task['id']}/cancel", reason="too expensive")
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        log = await get(client, f"/tasks/{task['id']}/log")
        assert "too expensive" in json.dumps(log["entries"])
        again = await client.post(f"{PREFIX}/tasks/{task['id']}/cancel", json={})
        assert again.status_code == 400
        assert again.json()["error"]["details"][0]["reason"] == "TASK_NOT_CANCELABLE"


async def test_a_task_is_steered() -> None:
    """The five kinds of steering are accepted, and no other."""
    good: list[dict[str, Any]] = [
        {"kind": "inject", "payload": {"words": "hurry"}},
        {"kind": "redirect", "payload": {"goal": "south"}},
        {"kind": "pause", "reason": "lunch"},
        {"kind": "resume"},
        {"kind": "prioritise", "payload": {"priority": 3}},
    ]
    bad: list[dict[str, Any]] = [{"kind": "explode"}, {"kind": 7}, {}, {"kind": "inject", "payload": [1]}]
    async with talking(agent()) as client:
        task = await send(client, "wait", now=True)
        await states(client, task["id"], "WORKING")
        for body in good:
            assert await post(client, f"/tasks/{task['id']}/steer", **body) == {
                "taskId": task["id"],
                "kind": body["kind"],
            }
        for body in bad:
            assert (await client.post(f"{PREFIX}/tasks/{task['id']}/steer", json=body)).status_code == 400, body
        inbox = await get(client, f"/tasks/{task['id']}/inbox")
        assert inbox["head"] == len(good)
        await post(client, f"/tasks/{task['id']}/cancel")


async def test_a_failed_task_is_requeued_as_a_new_task() -> None:
    async with talking(agent()) as client:
        task = await send(client, "fail no")
        new = await post(client, f"/tasks/{task['id']}/requeue")
        assert new["taskId"] != task["id"]
        shown = await states(client, new["taskId"], "FAILED")
        assert task["id"] in json.dumps(shown["task"])  # the new task refers to the failed one
        assert (await post(client, f"/tasks/{task['id']}/requeue")) == new  # a repeat returns the same task
        done = await send(client, "echo fine")
        refused = await client.post(f"{PREFIX}/tasks/{done['id']}/requeue", json={})
        assert refused.status_code == 400


async def test_a_task_is_forked_from_an_entry_of_its_log() -> None:
    async with talking(agent()) as client:
        task = await send(client, "ask")
        await send(client, "Ada", taskId=task["id"])
        before = await get(client, f"/tasks/{task['id']}/log")
        forked = await post(client, f"/tasks/{task['id']}/fork", seq=before["head"])
        shown = await states(client, forked["taskId"], "COMPLETED")
        assert forked["taskId"] != task["id"]
        assert [message["parts"][0]["text"] for message in shown["task"]["history"]][:1] == ["ask"]
        assert await get(client, f"/tasks/{task['id']}/log") == before  # history is never rewritten
        for seq in (0, before["head"] + 1, "last"):
            answer = await client.post(f"{PREFIX}/tasks/{task['id']}/fork", json={"seq": seq})
            assert answer.status_code == 400, seq


async def test_an_erased_task_is_gone(url: str) -> None:
    async with talking(agent(url)) as client:
        task = await send(client, "echo secret")
        answer = await client.delete(f"{PREFIX}/tasks/{task['id']}")
        assert (answer.status_code, answer.json()) == (200, {"erased": 1})
        for path in ("", "/log", "/inbox"):
            assert (await client.get(f"{PREFIX}/tasks/{task['id']}{path}")).status_code == 404
        assert (await client.get(f"/tasks/{task['id']}")).status_code == 404
        assert (await get(client, "/tasks"))["total"] == 0
        assert (await client.delete(f"{PREFIX}/tasks/{task['id']}")).status_code == 404


async def test_dead_letters_are_listed_and_dropped() -> None:
    """Five processes claimed the task and died; it is a dead letter and waits for a decision."""
    async with open_storage("memory:") as kernel:
        async with TaskEngine(kernel) as no_worker:
            sent = await no_worker.tasks.send(Message(message_id="1", role=Role.user, parts=[Part(text="echo")]))
            for number in range(5):
                assert await kernel.claim(QUEUE, f"mortal-{number}", lease_seconds=0.01)
                await asyncio.sleep(0.03)
        task_id = sent.task.record.task_id
        async with talking(A2AServer(worker=act, agent_card=CARD, storage=kernel, settings=OPERATED)) as client:
            await states(client, task_id, "FAILED")
            [letter] = (await get(client, "/dead"))["dead"]
            assert letter["taskId"] == task_id
            assert letter["attempts"] >= 5
            assert letter["reason"]
            [item] = (await get(client, "/work", state="dead"))["work"]
            assert (item["taskId"], item["state"], item["reason"]) == (task_id, "dead", letter["reason"])
            assert (await client.delete(f"{PREFIX}/dead/{task_id}")).json() == {"dropped": 1}
            assert (await get(client, "/dead"))["dead"] == []
            await states(client, task_id, "FAILED")  # the task stays
            assert (await client.delete(f"{PREFIX}/dead/{task_id}")).status_code == 404


# ------------------------------------------------------------------------------------------------------------ system


async def test_the_system_describes_itself(url: str) -> None:
    async with talking(agent(url)) as client:
        await send(client, "echo 1")
        system = await get(client, "/system")
        assert (system["engine"], system["reads"], system["writes"]) == (url.partition(":")[0], True, True)
        stored = await get(client, "/system/storage")
        assert stored["partitions"] >= 1
        assert stored["entries"] > 0
        assert system["process"]["name"]
        assert (await get(client, "/work"))["work"] == []
        assert ANONYMOUS.partition in (await get(client, "/partitions"))["partitions"]
        assert (await get(client, "/partitions", after="~~"))["partitions"] == []
        for path in ("/partitions", "/state/tenants", "/turns/tenants"):
            for odd in ("\0", "x" * 3000):
                assert (await client.get(PREFIX + path, params={"after": odd})).status_code == 400


async def test_work_that_waits_is_listed_by_pages() -> None:
    async def sleeps(ctx: TaskContext) -> None:
        await ctx.sleep(3600)

    async with talking(A2AServer(worker=sleeps, agent_card=CARD, settings=OPERATED)) as client:
        sent = {(await send(client, "sleep", now=True))["id"] for _ in range(3)}
        async with asyncio.timeout(20):
            while len((await get(client, "/work"))["work"]) < 3:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.02)
        first = await get(client, "/work", state="waiting", pageSize=2)
        second = await get(client, "/work", state="waiting", pageSize=2, pageToken=first["nextPageToken"])
        assert {item["taskId"] for item in (*first["work"], *second["work"])} == sent
        assert (second["nextPageToken"], first["work"][0]["readyIn"] > 3000) == ("", True)
        assert (await client.get(f"{PREFIX}/work", params={"state": "lost"})).status_code == 400


# ------------------------------------------------------------------------------------------------------------ access


async def test_a_caller_sees_its_own_tasks_and_an_operator_those_it_requests() -> None:
    server = A2AServer(worker=act, agent_card=CARD, auth=authenticator())
    ada, bob, olga = dict(bearer("ada")), dict(bearer("bob")), dict(bearer("olga", roles=["operator:all"]))
    async with talking(server) as client:
        task = await send(client, "echo mine", headers=ada)

        async def status(path: str, headers: dict[str, str], **query: str) -> int:
            return (await client.get(PREFIX + path, headers=headers, params=query)).status_code

        path = f"/tasks/{task['id']}"
        ours = {"tenant": "acme", "owner": "ada"}
        assert await status(path, ada) == 200
        assert await status(path, ada, **ours) == 200  # the partition may be named
        assert await status(path, bob) == 404
        assert await status(path, bob, **ours) == 404
        assert await status(path, olga) == 404  # without names, an operator sees only its own tasks
        assert await status(path, olga, **ours) == 200
        assert await status("/system", ada) == 404
        assert await status("/system", olga) == 200
        assert await status("/system", {}) == 401  # also on loopback, because the agent authenticates its callers
        found = (await client.get(f"{PREFIX}/partitions", headers=olga)).json()["partitions"]
        assert found == ["acme/ada"]


async def test_unknown_parameters_are_refused_with_the_nearest_name() -> None:
    """A misspelt filter would list all tasks, and a misspelt dryRun would erase."""
    server = A2AServer(worker=act, agent_card=CARD, auth=authenticator())
    ada, olga = dict(bearer("ada")), dict(bearer("olga", roles=["operator:all"]))
    async with talking(server) as client:
        for method, path, query, body, field, words in (
            ("GET", "/tasks", {"contxt": "c"}, None, "contxt", "query parameter; did you mean 'context'?"),
            ("GET", "/work", {"page_token": "x"}, None, "page_token", "did you mean 'pageToken'?"),
            ("GET", "/system", {"tenant": "acme"}, None, "tenant", "query parameter; known are none"),
            ("GET", "/system/events", {"x": ""}, None, "x", "known are none"),
            ("GET", "/state/sessions", {"q": "x"}, None, "q", "known are pageSize, pageToken, tenant"),
            ("POST", "/erase", {}, {"kind": "task", "id": "1", "dryrun": True}, "dryrun", "did you mean 'dryRun'?"),
            ("POST", "/erase", {"dryRun": "true"}, {"kind": "task", "id": "1"}, "dryRun", "query parameter"),
        ):
            answer = await client.request(method, PREFIX + path, params=query, json=body, headers=olga)
            error = answer.json()["error"]
            assert (answer.status_code, error["status"]) == (400, "INVALID_ARGUMENT")
            assert error["message"].startswith(f"{field}: there is no such ")
            assert words in error["message"]
            violations = [each for detail in error["details"] for each in detail.get("fieldViolations", ())]
            assert [violation["field"] for violation in violations] == [field]
        hidden = await client.get(f"{PREFIX}/system", params={"x": "1"}, headers=ada)
        assert hidden.status_code == 404  # for callers without the role the route does not exist


# ----------------------------------------------------------------------------------------------------------- OpenAPI


async def test_the_document_is_valid_and_has_every_route() -> None:
    async with talking(agent()) as client:
        document = await get(client, "/openapi.json")
        base = str(client.base_url).rstrip("/")
    OpenAPIV31SpecValidator(document).validate()
    assert document["servers"] == [{"url": base}]
    described = {
        (method.upper(), path): about
        for path, methods in document["paths"].items()
        for method, about in methods.items()
    }
    assert set(described) == {(route.method, PREFIX + route.path) for route in ROUTES}
    for route in ROUTES:
        about = described[route.method, PREFIX + route.path]
        assert about["summary"] == route.summary
        assert {one["name"] for one in about["parameters"] if one["in"] == "query"} == {name for name, _ in route.query}


GIVEN: dict[str, tuple[str, dict[str, Any]]] = {
    "steer_task": ("wait", {"kind": "inject"}),
    "fork_task": ("ask", {"seq": 1}),
    "requeue_task": ("fail", {}),
    "send_task": ("ask", {"text": "echo"}),
    "erase_subject": ("ask", {"kind": "tenant", "id": "none", "dryRun": True}),
}
"""The message of the route's task, and the arguments of the route."""


async def test_every_route_responds() -> None:
    """Each route responds with the status of its table, also for missing dead letters and webhooks."""
    async with talking(agent(settings=LOOPBACK)) as client:
        for route in ROUTES:
            text, body = GIVEN.get(route.name, ("ask", {}))
            task = await send(client, text, now=text == "wait")
            named = set(re.findall(r"{(\w+)}", route.path)) - {"task_id"}
            path = PREFIX + route.path.format(**dict.fromkeys(named, "0" * 64), task_id=task["id"])
            if route.stream:
                async with client.stream(route.method, path, json=body if route.method == "POST" else None) as answer:
                    assert answer.status_code == (404 if route.name == "erase_subject" else 200), route.name
                    assert await anext(answer.aiter_lines())
                continue
            answer = await client.request(route.method, path, json=body if route.method == "POST" else None)
            # These name data that does not exist.
            expected = {"drop_dead": 404, "erase_context": 400, "data_subject": 400}.get(
                route.name, 404 if named else 200
            )
            empty = route.name in ("state_updates", "state_steering", "state_events", "state_planner_events")
            assert answer.status_code == (200 if empty else expected), (route.name, answer.text)
            assert answer.headers["content-type"] == "application/json"
            assert isinstance(answer.json(), dict)
            if text == "wait":
                await post(client, f"/tasks/{task['id']}/cancel")


async def test_paths_outside_of_the_table_do_not_exist() -> None:
    async with talking(agent()) as client:
        for method, path in (("GET", "/nothing"), ("PUT", "/tasks"), ("POST", "/system"), ("GET", "/tasks/x/nothing")):
            answer = await client.request(method, PREFIX + path, json={})
            assert answer.status_code == 404, path
        assert (await client.get(f"{PREFIX}/tasks/no-such-task")).status_code == 404
        assert (await client.get(f"{PREFIX}/tasks/no-such-task/events")).status_code == 404
        answer = await client.post(f"{PREFIX}/tasks/x/cancel", content="[]", headers={"Content-Type": "text/plain"})
        assert answer.status_code == 415


# ----------------------------------------------------------------------------------------------- lists and searches


async def test_lists_show_how_a_task_began_and_can_be_searched() -> None:
    async with talking(agent()) as client:
        blue = await send(client, "say blue")
        await send(client, "say red")
        skilled = await client.post(
            "/message:send",
            json={
                "message": {"messageId": "skilled", "role": "ROLE_USER", "parts": [{"data": {"n": 1, "apiKey": "k"}}]},
                "metadata": {"skillId": "paint"},
            },
        )
        listed = (await get(client, "/tasks"))["tasks"]
        assert {task["said"] for task in listed} == {"say blue", "say red", '{"n":1,"apiKey":"•••"}'}
        assert [task["id"] for task in (await get(client, "/tasks", q="BLUE"))["tasks"]] == [blue["id"]]
        assert [task["id"] for task in (await get(client, "/tasks", q=blue["id"]))["tasks"]] == [blue["id"]]
        painted = (await get(client, "/tasks", skill="paint"))["tasks"]
        assert [(task["id"], task["skill"]) for task in painted] == [(skilled.json()["task"]["id"], "paint")]
        assert (await get(client, "/tasks", until=blue["status"]["timestamp"]))["tasks"] == []
        assert len((await get(client, "/tasks", until="2999-01-01T00:00:00Z"))["tasks"]) == 3


async def test_a_search_is_paged_like_any_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search scans a limited number of tasks at once; each match is on exactly one of its pages."""
    monkeypatch.setattr("keelbolt.operations.task_lists.CHUNK", 3)
    monkeypatch.setattr("keelbolt.operations.task_lists.LOOKED", 5)
    async with talking(agent()) as client:
        for number in range(12):
            await send(client, f"say {'even' if number % 2 == 0 else 'odd'} {number}")
        found: list[str] = []
        page = await get(client, "/tasks", q="even", pageSize=2)
        pages = 1
        while page["nextPageToken"]:
            found += [task["said"] for task in page["tasks"]]
            page = await get(client, "/tasks", q="even", pageSize=2, pageToken=page["nextPageToken"])
            pages += 1
        found += [task["said"] for task in page["tasks"]]
        assert found == [f"say even {number}" for number in range(10, -1, -2)]
        assert pages > 2


async def test_a_task_is_shown_in_brief() -> None:
    async with talking(agent()) as client:
        task = await send(client, "say it")
        whole, brief = (
            await get(client, f"/tasks/{task['id']}"),
            await get(client, f"/tasks/{task['id']}", brief="true"),
        )
        assert set(whole["task"]) - set(brief["task"]) == {"history", "artifacts"}
        assert {**whole, "task": None} == {**brief, "task": None}


async def test_callers_see_their_identity() -> None:
    async with talking(agent()) as client:
        assert await get(client, "/whoami") == {
            "owner": "",
            "tenant": "",
            "roles": [],
            "operator": True,
            "allTenants": True,
            "authentication": False,
        }


async def test_the_system_counts_the_tasks_that_ended_here() -> None:
    async with talking(agent()) as client:
        await send(client, "say it")
        system = await get(client, "/system")
        assert (system["process"]["ended"], system["process"]["failed"]) == (1, 0)
        assert 0 <= system["process"]["p50Seconds"] <= system["process"]["p95Seconds"]
        assert system["retention"] is None
