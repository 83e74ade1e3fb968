"""Web pages can't use an agent without authentication, by DNS rebinding or from another origin."""

from __future__ import annotations

import json

import pytest

from keelbolt.server.settings import ServerSettings
from tests.integration.server.actor import agent
from tests.integration.server.asgi import Headers, Reply, ask
from tests.integration.server.people import authenticator, bearer

MESSAGE = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
ROUTES = [
    ("POST", "/"),
    ("POST", "/message:send"),
    ("GET", "/tasks"),
    ("GET", "/v1/tasks/1"),
    ("GET", "/.well-known/agent-card.json"),
    ("GET", "/live"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
    ("GET", "/explorer/"),
    ("GET", "/keelbolt/v1/tasks"),
    ("POST", "/keelbolt/v1/tasks/1/cancel"),
    ("DELETE", "/keelbolt/v1/tasks/1"),
    ("GET", "/no/such/path"),
]


async def asked(headers: Headers, method: str = "POST", path: str = "/message:send", **settings: object) -> Reply:
    body = json.dumps(MESSAGE).encode() if method == "POST" else b""
    async with agent(auth=None, settings=ServerSettings.of({}, metrics=True, **settings)) as server:
        return await ask(server.app, method, path, headers=[("content-type", "application/json"), *headers], body=body)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_rebound_domain_gets_nothing_from_any_route(method: str, path: str) -> None:
    reply = await asked([("host", "rebound.example:8000")], method, path)
    assert reply.status == 421
    assert "allowed_hosts" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example",
        "localhost.rebound.example",
        "127.0.0.1.rebound.example",
        "127.0.0.1@rebound.example",
        "rebound.example#localhost",
        "localhost:8000, rebound.example",
        "0x7f000001",
        "[:bad",
        "",
    ],
)
async def test_hosts_of_other_sites(host: str) -> None:
    assert (await asked([("host", host)])).status == 421
    assert (await asked([("host", "localhost"), ("host", host)])).status == 421


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8000",
        "LOCALHOST",
        "localhost.",
        "app.localhost:1",
        "127.0.0.1:8000",
        "[::1]:8000",
        "192.0.2.7",
    ],
)
async def test_hosts_that_no_other_page_can_have(host: str) -> None:
    assert (await asked([("host", host)])).status == 200


async def test_the_operator_allows_hosts() -> None:
    assert (await asked([("host", "agent.example")], url="https://agent.example/a2a")).status == 200
    assert (await asked([("host", "other.example")], url="https://agent.example/a2a")).status == 421
    assert (await asked([("host", "Agent.internal:80")], allowed_hosts=["agent.internal"])).status == 200
    assert (await asked([("host", "agent.internal")], allowed_hosts=["*"])).status == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:9000", "http://localhost.evil.example"]
)
async def test_a_page_of_another_origin_changes_nothing(origin: str) -> None:
    headers = [("host", "localhost:8000"), ("origin", origin)]
    for path in ("/", "/message:send", "/keelbolt/v1/tasks/1/cancel"):
        assert (await asked(headers, path=path)).status == 403, path
    assert (await asked(headers, "DELETE", "/keelbolt/v1/tasks/1")).status == 403
    assert (await asked(headers, "GET", "/tasks")).status == 200  # the browser hides the response from the page
    assert (await asked(headers, cors_origins=[origin])).status == 200


async def test_own_pages_and_programs_are_served() -> None:
    assert (await asked([("host", "localhost:8000"), ("origin", "http://localhost:8000")])).status == 200
    assert (await asked([("host", "localhost:8000")])).status == 200
    assert (await asked([])).status == 200  # every browser sends Host


async def test_with_authentication_every_host_is_served() -> None:
    async with agent(auth=authenticator()) as server:
        headers = [("host", "anything.example"), *bearer("alice")]
        assert (await ask(server.app, "GET", "/tasks", headers=headers)).status == 200
