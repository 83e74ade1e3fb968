"""Attacks: a shared cache returns one caller's response to another; a browser renders JSON as a page."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.auth import TokenAuthenticator
from keelbolt.operations.table import PREFIX
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.protocol.signatures import CardKey
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from tests.integration.server.asgi import Headers, Reply, ask, call

TOKEN = "a-token-of-the-tests"
KNOWN: Headers = [("authorization", f"Bearer {TOKEN}")]


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(ctx.user_text)


def agent(**more: Any) -> A2AServer:
    capabilities = CapabilitiesConfig(streaming=True, push_notifications=True, extended_agent_card=True)
    card = AgentCardConfig(name="A", description="…", capabilities=capabilities)
    return A2AServer(
        worker=echo,
        agent_card=card,
        auth=TokenAuthenticator.of({TOKEN: "alice"}),
        extended_card=lambda _caller: card,
        settings=ServerSettings.of({}, metrics=True, url="https://agent.example", failed_logins=0),
        card_key=CardKey.generate("k"),
        **more,
    )


def check(reply: Reply, *, cached: bool = False) -> None:
    values = {name: [value for key, value in reply.headers if key == name] for name, _ in reply.headers}
    assert values[b"x-content-type-options"] == [b"nosniff"]
    [caching] = values[b"cache-control"]
    assert caching.startswith(b"public") if cached else b"no-store" in caching


async def test_responses_of_the_protocol() -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    async with agent() as server:
        app = server.app
        sent = await call(app, "SendMessage", {"message": message}, headers=KNOWN)
        check(sent)
        task_id = sent.json["result"]["task"]["id"]
        check(await call(app, "GetTask", {"id": task_id}, headers=KNOWN))
        check(await call(app, "SendStreamingMessage", {"message": {**message, "messageId": "n"}}, headers=KNOWN))
        check(await call(app, "GetTask", {"id": task_id}))  # 401
        check(await call(app, "NoSuchMethod", {}, headers=KNOWN))
        for path in ("/tasks", f"/tasks/{task_id}", "/extendedAgentCard", "/v1/card", "/nothing", "/tasks/none"):
            check(await ask(app, "GET", path, headers=KNOWN))
            check(await ask(app, "GET", path))


@pytest.mark.parametrize("path", ["/tasks", "/whoami", "/openapi.json", "/partitions", "/nothing", "/webhooks"])
async def test_responses_of_the_operations_api(path: str) -> None:
    async with agent() as server:
        check(await ask(server.app, "GET", f"{PREFIX}{path}", headers=KNOWN))
        check(await ask(server.app, "GET", f"{PREFIX}{path}"))


@pytest.mark.parametrize("path", ["/live", "/health", "/ready", "/metrics"])
async def test_responses_about_the_process(path: str) -> None:
    async with agent() as server:
        check(await ask(server.app, "GET", path))


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/.well-known/agent.json", "/.well-known/jwks.json"])
async def test_responses_for_all_callers_may_be_cached(path: str) -> None:
    async with agent() as server:
        check(await ask(server.app, "GET", path), cached=True)
