"""Section 15 of the design of apcore agents: health, metrics and log levels."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from keelbolt.apcore import InMemoryTaskStore
from keelbolt.auth import APIKeyAuthenticator, new_secret
from keelbolt.kernel.contract import Health
from tests.integration.apcore.calling import state, task_of
from tests.integration.apcore.modules import Echo, Giving, Sleeper, Whoami, registry_of
from tests.integration.apcore.serving import server_of, serving, until
from tests.integration.server.asgi import ask, call

NUMBERS = {
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


@pytest.fixture
def every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the health on each request, without the cache."""
    monkeypatch.setattr("keelbolt.server.health.LOOK_SECONDS", 0.0)


def failing() -> Giving:
    giving = Giving(RuntimeError("card number 4111111111111111"))
    giving.output_schema = Whoami.output_schema
    return giving


# ---------------------------------------------------------------------------------------------------------- 15.1 health


@pytest.mark.usefixtures("every_look")
async def test_section_15_1_health_counts_the_modules() -> None:
    registry = registry_of(echo=Echo())
    async with serving(registry, auth=APIKeyAuthenticator.of({new_secret(): "ann"})) as app:
        first = await ask(app, "GET", "/health")  # without credentials
        assert first.status == 200
        assert first.json["status"] == "healthy"
        assert first.json["module_count"] == 1
        assert isinstance(first.json["uptime_seconds"], float)
        await asyncio.to_thread(registry.register, "other", Echo())
        again = (await ask(app, "GET", "/health")).json
        assert again["module_count"] == 2
        assert again["uptime_seconds"] >= first.json["uptime_seconds"]
        registry.unregister("other")
        assert (await ask(app, "GET", "/health")).json["module_count"] == 1


@pytest.mark.usefixtures("every_look")
async def test_section_15_1_a_store_that_does_not_respond_is_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone() -> Health:
        return Health("postgres", "durable", reads=False, writes=False, detail="connection refused")

    async with serving(registry_of(echo=Echo())) as app:
        monkeypatch.setattr(server_of(app).routes.service.engine.kernel, "health", gone)
        reply = await ask(app, "GET", "/health")
        assert reply.status == 503
        assert reply.json["status"] == "unhealthy"
        assert reply.json["reason"] == "Task store health check failed: connection refused"


async def test_section_15_1_errors_of_a_store_are_sanitized() -> None:
    class Broken(InMemoryTaskStore):
        async def get(self, task_id: str) -> dict[str, Any] | None:
            raise OSError("no /srv/secrets/db.sock at redis://me:hunter2@10.0.0.5, password=hunter2")

    async with serving(registry_of(echo=Echo()), task_store=Broken()) as app:
        reply = await ask(app, "GET", "/health")
        assert (reply.status, reply.json["status"]) == (503, "unhealthy")
        assert "OSError" in reply.json["reason"]
        assert b"hunter2" not in reply.body
        assert b"/srv" not in reply.body


# --------------------------------------------------------------------------------------------------------- 15.2 metrics


async def test_section_15_2_metrics_count_tasks() -> None:
    sleeper = Sleeper()
    registry = registry_of(echo=Echo(), fails=failing(), sleeps=sleeper)
    async with serving(registry, metrics=True, auth=None) as app:
        await task_of(app, {"text": "of ann@example.com"}, skill="echo")
        assert state(await task_of(app, {}, skill="fails")) == "failed"
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"data": {}}], "metadata": {"skillId": "sleeps"}}
        streaming = asyncio.ensure_future(call(app, "SendStreamingMessage", {"message": message}))
        await asyncio.wait_for(sleeper.began.wait(), 10)
        numbers = (await ask(app, "GET", "/metrics")).json
        assert set(numbers) == NUMBERS
        assert (numbers["active_tasks"], numbers["completed_tasks"], numbers["failed_tasks"]) == (1, 1, 1)
        assert numbers["sse_active_streams"] == 1
        [task] = [
            each
            for each in (await call(app, "ListTasks", {})).json["result"]["tasks"]
            if each["status"]["state"] == "TASK_STATE_WORKING"
        ]
        await call(app, "CancelTask", {"id": task["id"]})
        await until(app, task["id"], "canceled")
        await streaming
        reply = await ask(app, "GET", "/metrics")
        assert reply.json["canceled_tasks"] == 1
        assert reply.json["active_tasks"] == 0
        assert reply.json["total_requests"] >= 5
        assert b"ann@example.com" not in reply.body
        assert b"4111" not in reply.body


async def test_section_15_2_metrics_are_optional_and_in_prometheus_format() -> None:
    async with serving(registry_of(echo=Echo())) as app:
        assert (await ask(app, "GET", "/metrics")).status == 404
    async with serving(registry_of(echo=Echo()), metrics=True, auth=APIKeyAuthenticator.of({new_secret(): "a"})) as app:
        scraped = [("accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")]
        reply = await ask(app, "GET", "/metrics", headers=scraped)
        families = {family.name for family in text_string_to_metric_families(reply.body.decode())}
        assert "keelbolt_tasks_running" in families
        assert set((await ask(app, "GET", "/metrics", headers=[("accept", "*/*")])).json) == NUMBERS


# --------------------------------------------------------------------------------------------------------- 15.3 logging


def levels(caplog: pytest.LogCaptureFixture, words: str) -> set[int]:
    return {record.levelno for record in caplog.records if words in record.getMessage()}


async def test_section_15_3_log_levels(caplog: pytest.LogCaptureFixture) -> None:
    class Nameless(Echo):
        description = ""

    caplog.set_level(logging.DEBUG, "keelbolt")
    async with serving(registry_of(echo=Echo(), nameless=Nameless(), fails=failing())) as app:
        await task_of(app, {}, skill="fails")
    assert levels(caplog, "Skipping module nameless: missing description") == {logging.WARNING}
    [failed] = [record for record in caplog.records if record.exc_info and record.levelno == logging.ERROR]
    assert failed.name == "keelbolt.apcore"
    assert failed.exc_info is not None
    assert "4111111111111111" in str(failed.exc_info[1])  # the full error, for the operator


async def test_section_15_3_card_changes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "keelbolt")
    registry = registry_of(echo=Echo())
    async with serving(registry) as app:
        caplog.clear()
        await asyncio.to_thread(registry.register, "other", Echo())
        async with asyncio.timeout(1):
            for _ in iter(int, 1):
                card = (await ask(app, "GET", "/.well-known/agent.json")).json
                if [skill["id"] for skill in card["skills"]] == ["echo", "other"]:
                    break
    assert levels(caplog, "skills") == {logging.INFO}


async def test_section_15_3_texts_of_clients_are_cut_and_sanitized(caplog: pytest.LogCaptureFixture) -> None:
    from keelbolt.observability.logs import HumanLines

    evil = "x\x1b[31m\r\nINFO all is well " + "y" * 5000
    async with serving(registry_of(echo=Echo(), other=Echo())) as app:
        await call(app, "SendMessage", _message(evil))
    for line in (HumanLines().format(record) for record in caplog.records):
        assert "\x1b" not in line
        assert "\nINFO" not in line
        assert "y" * 1001 not in line


def _message(skill: str) -> dict[str, Any]:
    parts = [{"data": {"text": "hi"}}]
    return {"message": {"messageId": "1", "role": "ROLE_USER", "parts": parts, "metadata": {"skillId": skill}}}
