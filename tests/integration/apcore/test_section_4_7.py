"""Section 4.7 of the design of apcore agents: task stores, the in-memory store, and an agent with a task store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.apcore import CallerApproves, InMemoryTaskStore, TaskStore
from keelbolt.apcore.task_store import METHODS
from keelbolt.auth import ANONYMOUS, APIKeyAuthenticator, new_secret
from tests.integration.apcore.calling import output, send, state, streamed, task_of
from tests.integration.apcore.modules import Count, Deploy, Echo, executor_of, registry_of
from tests.integration.apcore.serving import server_of, serving, until
from tests.integration.server.asgi import ask, call


def task(task_id: str, context_id: str = "c", state: str = "completed") -> dict[str, Any]:
    return {"id": task_id, "contextId": context_id, "status": {"state": state, "message": None}, "artifacts": []}


class Ticking:
    """A manual clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Recording(InMemoryTaskStore):
    """Records its method calls; fails on command."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.broken: Exception | None = None

    def __getattribute__(self, name: str) -> Any:
        if name in METHODS:
            if (broken := super().__getattribute__("broken")) is not None:
                raise broken
            super().__getattribute__("calls").append(name)
        return super().__getattribute__(name)


# ------------------------------------------------------------------------------------------------------------- 4.7.1


def test_section_4_7_1_the_protocol_has_ten_methods() -> None:
    assert isinstance(InMemoryTaskStore(), TaskStore)
    assert not isinstance(object(), TaskStore)
    assert len(METHODS) == 10
    assert all(callable(getattr(TaskStore, name)) for name in METHODS)


# ------------------------------------------------------------------------------------------------------------- 4.7.2


async def test_section_4_7_2_tasks_survive_a_round_trip() -> None:
    store = InMemoryTaskStore()
    given = task("1")
    await store.save(given)
    given["status"]["state"] = "changed later"
    found = await store.get("1")
    assert found == task("1")
    assert found is not None
    found["id"] = "changed later"
    assert await store.get("1") == task("1")
    await store.save({**task("1"), "metadata": {"a": 1}})
    assert (await store.get("1") or {})["metadata"] == {"a": 1}
    assert await store.get("2") is None
    assert await store.delete("1") is True
    assert await store.delete("1") is False
    assert await store.get("1") is None


async def test_section_4_7_2_status_changes() -> None:
    store = InMemoryTaskStore()
    await store.save(task("1", state="working"))
    updated = await store.update_status("1", {"state": "completed", "message": "well"})
    assert updated["status"] == {"state": "completed", "message": "well"}
    assert [status["state"] for status in updated["history"]] == ["working"]
    assert await store.get("1") == updated
    with pytest.raises(KeyError):
        await store.update_status("2", {"state": "completed"})


async def test_section_4_7_2_pages() -> None:
    store = InMemoryTaskStore()
    for number in range(7):
        await store.save(task(str(number), "even" if number % 2 == 0 else "odd"))
    first = await store.list(limit=3)
    assert [each["id"] for each in first["tasks"]] == ["6", "5", "4"]
    await store.delete("4")  # the last task of the page
    await store.save(task("7"))  # new tasks do not affect the cursor
    second = await store.list(cursor=first["nextCursor"], limit=3)
    assert [each["id"] for each in second["tasks"]] == ["3", "2", "1"]
    last = await store.list(cursor=second["nextCursor"], limit=3)
    assert ([each["id"] for each in last["tasks"]], last["nextCursor"]) == (["0"], None)
    odd = await store.list("odd", limit=500)
    assert ([each["id"] for each in odd["tasks"]], odd["nextCursor"]) == (["5", "3", "1"], None)
    assert len((await store.list(limit=0))["tasks"]) == 1
    assert await store.list("nowhere") == {"tasks": [], "nextCursor": None}
    with pytest.raises(ValueError):
        await store.list(cursor="no cursor")


async def test_section_4_7_2_push_configs() -> None:
    store = InMemoryTaskStore()
    await store.save(task("1"))
    assert await store.get_push_config("1") is None
    await store.save_push_config("1", {"url": "https://a.example"})
    assert await store.get_push_config("1") == {"url": "https://a.example"}
    assert await store.delete_push_config("1") is True
    assert await store.delete_push_config("1") is False


async def test_section_4_7_2_the_last_messages_of_a_context_are_kept() -> None:
    store = InMemoryTaskStore(max_context_messages=3)
    assert await store.get_context("c") is None
    await store.save_context("c", [1, 2])
    assert await store.get_context("c") == [1, 2]
    await store.save_context("c", [1, 2, 3, 4, 5])
    assert await store.get_context("c") == [3, 4, 5]


async def test_section_4_7_2_expired_tasks_are_evicted_first() -> None:
    clock = Ticking()
    store = InMemoryTaskStore(max_capacity=3, ttl_seconds=60, clock=clock)
    await store.save(task("old"))
    await store.save(task("older"))
    clock.now += 61
    await store.save(task("young"))
    assert await store.get("old") is not None  # it is evicted only when the store is full
    await store.save(task("new"))
    assert [each["id"] for each in (await store.list())["tasks"]] == ["new", "young"]


async def test_section_4_7_2_then_the_oldest_task_is_evicted() -> None:
    store = InMemoryTaskStore(max_capacity=2)
    for name in "abc":
        await store.save(task(name))
    assert [each["id"] for each in (await store.list())["tasks"]] == ["c", "b"]
    await store.save({**task("b"), "metadata": {}})  # not a new task: nothing is evicted
    assert [each["id"] for each in (await store.list())["tasks"]] == ["c", "b"]


async def test_section_4_7_2_active_tasks_are_evicted_last() -> None:
    clock = Ticking()
    store = InMemoryTaskStore(max_capacity=2, ttl_seconds=60, clock=clock)
    await store.save(task("waits", state="input_required"))
    await store.save(task("ended"))
    clock.now += 61
    await store.save(task("works", state="working"))
    assert {each["id"] for each in (await store.list())["tasks"]} == {"waits", "works"}
    await store.save(task("new", state="working"))  # no task has ended: the oldest is evicted
    assert {each["id"] for each in (await store.list())["tasks"]} == {"works", "new"}


async def test_section_4_7_2_data_of_a_task_is_evicted_with_it() -> None:
    store = InMemoryTaskStore(max_capacity=2)
    await store.save(task("1", "shared"))
    await store.save(task("2", "shared"))
    await store.save_push_config("1", {"url": "u"})
    await store.save_context("shared", ["hello"])
    await store.save(task("3", "other"))
    assert await store.get_push_config("1") is None
    assert await store.get_context("shared") == ["hello"]  # the second task still uses it
    await store.save(task("4", "other"))
    assert await store.get_context("shared") is None


@pytest.mark.parametrize("bounds", [{"max_capacity": 0}, {"ttl_seconds": -1.0}, {"max_context_messages": 0}])
def test_section_4_7_2_invalid_bounds(bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        InMemoryTaskStore(**bounds)


async def test_section_4_7_2_many_at_once() -> None:
    store = InMemoryTaskStore(max_capacity=50)
    await asyncio.gather(*(store.save(task(str(number), str(number % 7))) for number in range(200)))
    assert len((await store.list(limit=200))["tasks"]) == 50


# ------------------------------------------------------------------------------------------------- an agent on a store


async def test_section_4_7_an_agent_writes_through_to_its_store() -> None:
    store = Recording()
    async with serving(registry_of(echo=Echo(), count=Count()), task_store=store, push_notifications=True) as app:
        done = await task_of(app, {"text": "hi"}, skill="echo", contextId="talk")
        counted = await streamed(app, {"to": 3}, skill="count", contextId="talk")
        config = {"taskId": done["id"], "url": "https://hooks.example.com/a2a", "token": "mine"}
        assert "result" in (await call(app, "tasks/pushNotificationConfig/set", config)).json
        listed = (await call(app, "tasks/list", {"contextId": "talk"})).json["result"]["tasks"]
        assert {each["id"] for each in listed} == {done["id"], counted["id"]}
    kept = await store.get(done["id"])
    assert kept is not None
    assert kept["contextId"] == "talk"
    assert kept["status"]["state"] == "completed"
    assert [status["state"] for status in kept["history"]][:1] == ["submitted"]
    assert kept["artifacts"][0]["parts"] == [{"type": "data", "data": {"text": "hi"}, "mediaType": "application/json"}]
    chunks = (await store.get(counted["id"]) or {})["artifacts"][0]["parts"]
    assert [part["data"] for part in chunks] == [{"number": 1}, {"number": 2}, {"number": 3}]
    pushed = await store.get_push_config(done["id"])
    assert pushed is not None
    assert (pushed["taskId"], pushed["url"], pushed["status"]) == (done["id"], config["url"], "active")
    messages = await store.get_context("talk") or []
    assert [message["parts"][0]["data"] for message in messages if message["role"] == "user"] == [
        {"text": "hi"},
        {"to": 3},
    ]
    assert set(store.calls) >= {"save", "get", "list", "update_status", "save_push_config", "save_context"}


async def test_section_4_7_a_waiting_task_continues_in_the_next_process() -> None:
    """One process requests an approval; another process, which shares only the store, receives it."""
    store = InMemoryTaskStore()

    def modules() -> Any:
        return executor_of(registry_of(deploy=Deploy()), approval_handler=CallerApproves())

    async with serving(modules(), task_store=store, push_notifications=True) as app:
        asked = await task_of(app, {"text": "v2"}, skill="deploy")
        assert state(asked) == "input_required"
        config = {"taskId": asked["id"], "url": "https://hooks.example.com/a2a"}
        await call(app, "tasks/pushNotificationConfig/set", config)
    async with serving(modules(), task_store=store, push_notifications=True) as app:
        found = (await call(app, "tasks/pushNotificationConfig/get", {"taskId": asked["id"]})).json
        assert "hooks.example.com" in str(found["result"])
        engine = server_of(app).routes.service.engine
        record = await engine.store.record(engine.tasks.scope(ANONYMOUS), asked["id"])
        assert record is not None
        assert len(record.push) == 1  # the webhook gets later events
        done = await task_of(app, "approved", taskId=asked["id"])
    assert output(done) == {"deployed": "v2"}


async def test_section_4_7_a_store_that_fails_acknowledges_nothing() -> None:
    store = Recording()
    async with serving(registry_of(echo=Echo()), task_store=store) as app:
        task = await task_of(app, {"text": "hi"}, skill="echo")
        await until(app, task["id"], "completed")
        store.broken = ConnectionError("connection refused")
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"data": {"text": "lost"}}]}
        reply = (await call(app, "SendMessage", {"message": message})).json
        assert "result" not in reply
        assert "connection refused" not in str(reply)
        health = await ask(app, "GET", "/health")
        assert health.status == 503
        store.broken = None


async def test_section_4_7_callers_are_isolated() -> None:
    """A store has no owners: the owner of a task is in its metadata, and other callers do not see it."""
    store, keys = InMemoryTaskStore(), {name: new_secret() for name in ("ann", "bob")}
    auth = APIKeyAuthenticator.of({key: name for name, key in keys.items()})
    async with serving(registry_of(echo=Echo()), task_store=store, auth=auth) as app:
        mine = [("x-api-key", keys["ann"])]
        task = (await send(app, {"text": "hi"}, skill="echo", headers=mine)).json["result"]["task"]
        assert "result" in (await call(app, "GetTask", {"id": task["id"]}, headers=mine)).json
    async with serving(registry_of(echo=Echo()), task_store=store, auth=auth) as app:  # from the store alone
        for name, found in (("ann", True), ("bob", False)):
            headers = [("x-api-key", keys[name])]
            reply = await call(app, "GetTask", {"id": task["id"]}, headers=headers)
            assert ("result" in reply.json) is found
            listed = (await call(app, "ListTasks", {}, headers=headers)).json["result"]
            assert [each["id"] for each in listed["tasks"]] == ([task["id"]] if found else [])
            assert listed["totalSize"] == found
            assert "keelbolt.owner" not in str(listed)
