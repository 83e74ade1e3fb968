"""Tenants by path and by field are separate from each other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from starlette.types import ASGIApp

from tests.integration.server.actor import agent
from tests.integration.server.asgi import ask, call

JSON = [("content-type", "application/json")]


@pytest.fixture
async def app() -> AsyncIterator[ASGIApp]:
    async with agent() as server:
        yield server.app


async def send(app: ASGIApp, tenant: str | None) -> str:
    message = {"messageId": "the same everywhere", "role": "ROLE_USER", "parts": [{"text": "ask"}]}
    params = {"message": message, **({"tenant": tenant} if tenant is not None else {})}
    reply = await call(app, "SendMessage", params, headers=[("idempotency-key", "the same everywhere")])
    return str(reply.json["result"]["task"]["id"])


async def test_each_tenant_has_its_own_tasks(app: ASGIApp) -> None:
    """The same message of three tenants creates three tasks; each tenant sees only its own, by path and by field."""
    tasks = {tenant: await send(app, tenant) for tenant in ("", "acme", "öl & co")}
    assert len(set(tasks.values())) == 3
    for tenant, mine in tasks.items():
        listed = (await call(app, "ListTasks", {"tenant": tenant})).json["result"]["tasks"]
        assert [task["id"] for task in listed] == [mine]
        for other in tasks.values():
            reply = await call(app, "GetTask", {"tenant": tenant, "id": other})
            assert ("result" in reply.json) is (other == mine)
    for path, tenant in (("", ""), ("/acme", "acme"), ("/%C3%B6l%20%26%20co", "öl & co")):
        reply = await ask(app, "GET", f"{path}/tasks")
        assert [task["id"] for task in reply.json["tasks"]] == [tasks[tenant]]
        reply = await ask(app, "GET", f"{path}/tasks/{tasks['acme']}")
        assert reply.status == (200 if tenant == "acme" else 404)
        reply = await ask(app, "POST", f"{path}/tasks/{tasks['acme']}:cancel", headers=JSON)
        assert reply.status == (200 if tenant == "acme" else 404)


async def test_the_path_takes_precedence_over_the_field(app: ASGIApp) -> None:
    mine = await send(app, "acme")
    reply = await ask(app, "GET", f"/acme/tasks/{mine}", query="tenant=other")
    assert reply.status == 200
    reply = await ask(app, "GET", f"/other/tasks/{mine}", query="tenant=acme")
    assert reply.status == 404


@pytest.mark.parametrize("tenant", ["x" * 2_000, 7, ["acme"]])
async def test_no_tenant(app: ASGIApp, tenant: object) -> None:
    reply = await call(app, "ListTasks", {"tenant": tenant})
    assert reply.json["error"]["code"] == -32602


@pytest.mark.parametrize("tenant", ["tasksquad", "tasks", "extendedAgentCards", "message:x"])
async def test_a_tenant_may_have_the_name_of_a_path_segment(app: ASGIApp, tenant: str) -> None:
    mine = await send(app, tenant)
    body = b'{"message":{"messageId":"the same everywhere","role":"ROLE_USER","parts":[{"text":"ask"}]}}'
    headers = [*JSON, ("idempotency-key", "the same everywhere")]
    reply = await ask(app, "POST", f"/{tenant}/message:send", headers=headers, body=body)
    assert reply.json["task"]["id"] == mine
    assert (await ask(app, "GET", f"/{tenant}/tasks/{mine}")).json["id"] == mine
