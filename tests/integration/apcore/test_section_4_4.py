"""Sections 4.4 to 4.8 of the design of apcore agents: the rest of the server, the client's card, authentication."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from apcore import Identity

from keelbolt.apcore import ApcoreServer
from keelbolt.auth import JWTAuthenticator
from keelbolt.auth.authenticator import auth_identity_var
from keelbolt.client import A2AClient, A2ADiscoveryError
from keelbolt.server.settings import ServerSettings
from tests.integration.apcore.calling import message, output, send, state, status_data, task_of
from tests.integration.apcore.modules import Anything, Count, Echo, Giving, Sleeper, Whoami, executor_of, registry_of
from tests.integration.apcore.serving import serving, until
from tests.integration.apcore.test_section_7 import data, send_params
from tests.integration.apcore.test_section_10 import SECRET, authenticator, bearer
from tests.integration.client.bad_agent import CARD_PATH, bad_agent, http
from tests.integration.server.asgi import ask, call, rpc
from tests.integration.webhooks.receiver import receiving

# ------------------------------------------------------------------------------------------------- 4.4.2 the execution


class Plain:
    """An executor of another library: it calls modules, with or without a context."""

    def __init__(self, registry: Any) -> None:
        self.registry = registry

    async def call_async(self, module_id: str, inputs: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await self.registry.get(module_id).execute(inputs, None)
        return found


async def test_section_4_4_2_an_executor_without_a_context() -> None:
    async with serving(Plain(registry_of(echo=Echo(), count=Count()))) as app:
        assert output(await task_of(app, "hi", skill="echo")) == {"text": "hi"}
        assert output(await task_of(app, {"to": 3}, skill="count")) == {"last": 3}  # this executor can't stream either


async def test_section_4_4_2_the_identity_is_passed_to_the_call() -> None:
    async with serving(registry_of(who=Whoami()), auth=authenticator()) as app:
        reply = await send(app, {}, skill="who", headers=bearer(sub="ann", roles=["admin"]))
        found = output(reply.json["result"]["task"])
        assert (found["id"], found["roles"]) == ("ann", ["admin"])
        assert 0 < found["left"] <= 300


# ------------------------------------------------------------------------------------------------ 4.4.6 notifications


async def test_section_4_4_6_a_webhook_gets_each_state() -> None:
    sleeper = Sleeper()
    server = ApcoreServer(
        registry_of(sleep=sleeper), push_notifications=True, settings=ServerSettings.of(webhook_loopback=True)
    )
    async with receiving() as receiver, server:
        params = send_params(data({}), skill="sleep") | {"configuration": {"blocking": False}}
        task = (await call(server.app, "message/send", params)).json["result"]
        where = {"taskId": task["id"], "url": f"{receiver.url}/a2a"}
        assert "result" in (await call(server.app, "tasks/pushNotificationConfig/set", where)).json
        await sleeper.began.wait()
        await call(server.app, "tasks/cancel", {"id": task["id"]})
        async with asyncio.timeout(20):
            while not any(b"canceled" in one.body.lower() for one in receiver.arrivals):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_section_4_4_6_disabled_webhooks_are_refused() -> None:
    async with serving(registry_of(echo=Echo())) as app:
        task = await task_of(app, "x")
        where = {"taskId": task["id"], "url": "https://hooks.example.com/a2a"}
        assert (await call(app, "tasks/pushNotificationConfig/set", where)).json["error"]["code"] == -32003


# --------------------------------------------------------------------------------------------- 4.5.2 the client's card


async def test_section_4_5_2_a_card_is_cached_until_it_expires() -> None:
    now = 0.0
    async with bad_agent() as agent:
        agent.answers[CARD_PATH] = agent.card()
        async with A2AClient(agent.url, card_ttl=300.0, clock=lambda: now) as client:
            first = await client.agent_card
            assert await client.agent_card is first
            assert len(agent.asked) == 1
            now = 301.0
            assert await client.agent_card == first
            assert len(agent.asked) == 2


@pytest.mark.parametrize("wrong", [http(b"no JSON"), http(b"[]"), http(b"{}", status=500)], ids=["text", "list", "500"])
async def test_section_4_5_2_an_invalid_card_is_an_error(wrong: bytes) -> None:
    async with bad_agent() as agent:
        agent.answers[CARD_PATH] = wrong
        agent.answers["/.well-known/agent.json"] = wrong
        async with A2AClient(agent.url) as client:
            with pytest.raises(A2ADiscoveryError):
                await client.agent_card


# ------------------------------------------------------------------------------------------------ 4.6 authentication


async def test_section_4_6_1_an_authenticator_has_two_methods() -> None:
    class Names:
        def authenticate(self, headers: dict[str, str]) -> Identity | None:
            assert all(name == name.lower() for name in headers)
            return Identity(headers["x-name"]) if "x-name" in headers else None

        def security_schemes(self) -> list[dict[str, str]]:
            return [{"type": "apiKey", "in": "header", "name": "X-Name"}]

    async with serving(registry_of(who=Whoami()), auth=Names()) as app:
        assert (await send(app, {}, skill="who")).status == 401
        reply = await send(app, {}, skill="who", headers=[("X-Name", "bob")])
        assert output(reply.json["result"]["task"])["id"] == "bob"
        card = (await ask(app, "GET", "/.well-known/agent.json")).json
        assert "X-Name" in json.dumps(card["securitySchemes"])


async def test_section_4_6_2_tokens_identify_callers() -> None:
    """Section 10.2 covers signature, expiry, issuer and audience."""
    assert JWTAuthenticator(SECRET).security_schemes()
    async with serving(registry_of(who=Whoami()), auth=JWTAuthenticator(SECRET)) as app:
        reply = await send(app, {}, skill="who", headers=bearer(sub="svc", type="service", roles=["a", "b"], aud=None))
        found = output(reply.json["result"]["task"])
        assert (found["id"], found["type"], found["roles"]) == ("svc", "service", ["a", "b"])


async def test_section_4_6_3_a_module_and_its_thread_can_read_the_identity() -> None:
    class Asks(Giving):
        def execute(self, inputs: dict[str, Any], context: Any) -> Any:
            found = auth_identity_var.get()
            return {"owner": found.owner if found is not None else None}

    async with serving(registry_of(asks=Asks()), auth=authenticator()) as app:
        replies = await asyncio.gather(*[send(app, {}, headers=bearer(sub=f"user-{n}")) for n in range(5)])
        found = [output(reply.json["result"]["task"])["owner"] for reply in replies]
        assert found == [f"user-{n}" for n in range(5)]
        assert auth_identity_var.get() is None
        reply = await ask(app, "POST", "/", headers=[("content-type", "application/json")], body=rpc("tasks/list", {}))
        assert (reply.status, (reply.header("www-authenticate") or "")[:6]) == (401, "Bearer")


# ------------------------------------------------------------------------------------------------------- 4.8 explorer


async def test_section_4_8_the_page_is_public_and_calls_are_not() -> None:
    async with serving(registry_of(echo=Echo()), auth=authenticator(), explorer=True) as app:
        page = await ask(app, "GET", "/explorer/")
        assert page.status == 200
        assert b"https://" not in page.body  # no external resources
        headers = [("content-type", "application/json"), ("a2a-version", "1.0")]
        body = rpc("SendMessage", {"message": message("x", skill="echo")})
        for path in ("/", "/explorer/", "/explorer/message:send"):
            assert (await ask(app, "POST", path, headers=headers, body=body)).status in (401, 404, 405)


# --------------------------------------------------------------------------------------------------------- timeouts


async def test_a_timeout_covers_only_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a module that ends in time is stored, however long storing takes."""

    class Slow(Giving):
        input_schema = Anything

    async with serving(registry_of(slow=Slow(dict)), execution_timeout=0.3) as app:
        server: ApcoreServer = app.state.server
        complete = server.modules._complete

        async def late(*given: Any) -> None:
            await asyncio.sleep(1.0)
            await complete(*given)

        monkeypatch.setattr(server.modules, "_complete", late)
        task = await task_of(app, {"a": 1})
        assert output(task) == {"a": 1}


async def test_execution_timeout_is_a_module_timeout_error() -> None:
    sleeper = Sleeper()
    executor = executor_of(registry_of(sleep=sleeper))
    async with serving(executor, execution_timeout=0.2) as app:
        task = await task_of(app, {"deaf": False})
        assert (state(task), status_data(task)["data"]["type"]) == ("failed", "ModuleTimeoutError")
        await asyncio.wait_for(sleeper.cancelled.wait(), 10)  # the module was cancelled
        await until(app, task["id"], "failed")
