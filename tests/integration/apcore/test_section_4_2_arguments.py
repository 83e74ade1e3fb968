"""Section 4.2.1 of the design of apcore agents: every argument of serve() and async_serve() works."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keelbolt.apcore import CallerApproves, InMemoryTaskStore
from keelbolt.auth import APIKeyAuthenticator, new_secret
from keelbolt.tasks import RetentionPolicy, TaskState
from tests.integration.apcore.calling import output, send, state, status_text, task_of
from tests.integration.apcore.modules import Anything, Deploy, Echo, Sleeper, registry_of
from tests.integration.apcore.serving import server_of, serving, until
from tests.integration.server.asgi import ask, call


async def test_section_4_2_1_url() -> None:
    async with serving(registry_of(echo=Echo()), url="https://agent.example/a") as app:
        card = (await ask(app, "GET", "/.well-known/agent.json")).json
    assert card["url"].rstrip("/") == "https://agent.example/a"


async def test_section_4_2_1_auth() -> None:
    key = new_secret()
    async with serving(registry_of(echo=Echo()), auth=APIKeyAuthenticator.of({key: "ann"})) as app:
        assert (await send(app, {"text": "hi"}, skill="echo")).status == 401
        assert (await send(app, {"text": "hi"}, skill="echo", headers=[("x-api-key", key)])).status == 200


async def test_section_4_2_1_task_store() -> None:
    store = InMemoryTaskStore()
    async with serving(registry_of(echo=Echo()), task_store=store) as app:
        task = await task_of(app, {"text": "hi"}, skill="echo")
    kept = await store.get(task["id"])
    assert kept is not None
    assert kept["status"]["state"] == "completed"
    assert kept["artifacts"][0]["parts"][0]["data"] == {"text": "hi"}


async def test_section_4_2_1_storage(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/agent.db"
    async with serving(registry_of(echo=Echo()), storage=storage) as app:
        task = await task_of(app, {"text": "hi"}, skill="echo")
    async with serving(registry_of(echo=Echo()), storage=storage) as app:
        again = (await call(app, "GetTask", {"id": task["id"]})).json["result"]
    assert output(again) == {"text": "hi"}


async def test_section_4_2_1_cors_origins() -> None:
    origin = [("origin", "https://page.example")]
    async with serving(registry_of(echo=Echo()), cors_origins=["https://page.example"]) as app:
        reply = await ask(app, "GET", "/.well-known/agent.json", headers=origin)
        assert reply.header("access-control-allow-origin") == "https://page.example"


@pytest.mark.parametrize("pushes", [False, True])
async def test_section_4_2_1_push_notifications(pushes: bool) -> None:
    async with serving(registry_of(echo=Echo()), push_notifications=pushes) as app:
        card = (await ask(app, "GET", "/.well-known/agent.json")).json
        assert card["capabilities"].get("pushNotifications", False) is pushes
        task = await task_of(app, {"text": "hi"}, skill="echo")
        params = {"taskId": task["id"], "url": "https://hooks.example.com/a2a"}
        reply = (await call(app, "tasks/pushNotificationConfig/set", params)).json
        assert ("result" in reply) is pushes, reply


@pytest.mark.parametrize(
    ("options", "found", "missing"),
    [
        ({"explorer": True}, "/explorer/", "/inspect/"),
        ({"explorer": True, "explorer_prefix": "/inspect"}, "/inspect/", "/explorer/"),
        ({}, None, "/explorer/"),
    ],
)
async def test_section_4_2_1_explorer(options: dict[str, Any], found: str | None, missing: str) -> None:
    async with serving(registry_of(echo=Echo()), **options) as app:
        assert (await ask(app, "GET", missing)).status == 404
        if found is not None:
            page = await ask(app, "GET", found)
            assert page.status == 200
            assert b"<html" in page.body


@pytest.mark.parametrize("cancels", [True, False])
async def test_section_4_2_1_cancel_on_disconnect(cancels: bool) -> None:
    sleeper = Sleeper()
    async with serving(registry_of(sleeper=sleeper), cancel_on_disconnect=cancels, shutdown_timeout=0.1) as app:
        params = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"data": {}}]}}
        reply = await call(app, "SendStreamingMessage", params, enough=lambda body: b"WORKING" in body)
        task_id = reply.events[0]["result"]["task"]["id"]
        await asyncio.wait_for(sleeper.began.wait(), 10)
        if cancels:
            await asyncio.wait_for(sleeper.cancelled.wait(), 10)
            await until(app, task_id, "canceled")
        else:
            found = (await call(app, "GetTask", {"id": task_id})).json["result"]
            assert state(found) == "working"
            assert not sleeper.cancelled.is_set()


class Patient:
    """Runs until it is released."""

    input_schema = Anything
    output_schema = Anything
    description = "Works"

    def __init__(self) -> None:
        self.began, self.let_go = asyncio.Event(), asyncio.Event()

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        self.began.set()
        await self.let_go.wait()
        return {"done": True}


@pytest.mark.parametrize(("seconds", "let_go"), [(20, True), (0.05, False)])
async def test_section_4_2_1_shutdown_timeout(tmp_path: Path, seconds: float, let_go: bool) -> None:
    """Running tasks have this time to end; the rest is released, and the next process continues."""
    module, storage = Patient(), f"sqlite:///{tmp_path}/agent.db"
    async with serving(registry_of(patient=module), storage=storage, shutdown_timeout=seconds) as app:
        assert server_of(app).task_settings.drain_seconds == seconds
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"data": {}}]}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        task = (await call(app, "SendMessage", params)).json["result"]["task"]
        await asyncio.wait_for(module.began.wait(), 10)
        if let_go:
            asyncio.get_running_loop().call_later(0.1, module.let_go.set)
    other = Patient()
    async with serving(registry_of(patient=other), storage=storage, shutdown_timeout=20) as app:
        if not let_go:
            await asyncio.wait_for(other.began.wait(), 10)
            other.let_go.set()
        await until(app, task["id"], "completed")
    assert other.began.is_set() is not let_go


async def test_section_4_2_1_execution_timeout() -> None:
    async with serving(registry_of(patient=Patient()), execution_timeout=0.1) as app:
        task = await task_of(app, {}, skill="patient")
        assert (state(task), status_text(task)) == ("failed", "Execution timed out")


@pytest.mark.parametrize("metrics", [False, True])
async def test_section_4_2_1_metrics(metrics: bool) -> None:
    async with serving(registry_of(echo=Echo()), metrics=metrics) as app:
        assert (await ask(app, "GET", "/metrics")).status == (200 if metrics else 404)


async def test_section_4_2_1_default_skill() -> None:
    async with serving(registry_of(echo=Echo(), other=Patient()), default_skill="echo") as app:
        assert output(await task_of(app, {"text": "hi"})) == {"text": "hi"}


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({}, "rejected"),
        ({"allow_unapproved": True}, "completed"),
        ({"approval_handler": CallerApproves()}, "input_requ"),
    ],
)
async def test_section_4_2_1_approval_handler(options: dict[str, Any], ends: str) -> None:
    async with serving(registry_of(deploy=Deploy()), **options) as app:
        task = await task_of(app, {"text": "v2"}, skill="deploy")
        assert state(task).startswith(ends)


async def test_section_4_2_1_without_a_storage_ended_tasks_are_kept_for_an_hour() -> None:
    async with serving(registry_of(echo=Echo())) as app:
        retention = server_of(app)._retention
    assert isinstance(retention, RetentionPolicy)
    assert dict(retention.ages()) == dict.fromkeys(
        (TaskState.completed, TaskState.failed, TaskState.canceled, TaskState.rejected), 3600.0
    )
