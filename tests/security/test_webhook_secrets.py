"""Attacks on webhooks: a forged delivery signed with the token that every delivery carries, an id that shifts the
boundary between signed fields, an endless token, receivers that are not allowed, and errors that leak details.
"""

from __future__ import annotations

import base64
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import ASGIApp

from keelbolt.auth import Principal, TokenAuthenticator
from keelbolt.errors import AddressNotAllowed
from keelbolt.operations.table import PREFIX
from keelbolt.outbound.addresses import check_url
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.protocol.requests import Authentication, PushConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from keelbolt.webhooks.configs import MAX_CREDENTIALS, MAX_SCHEME, MAX_TOKEN
from keelbolt.webhooks.post import Poster
from keelbolt.webhooks.signing import verify
from tests.integration.grpc.speaking import PB, talking
from tests.integration.server.asgi import Headers, Reply, ask, call
from tests.integration.tasks.stage import until
from tests.integration.webhooks.receiver import receiving

ALICE, OLGA = "a-token-of-alice-here", "a-token-of-olga-here"
KNOWN: Headers = [("authorization", f"Bearer {ALICE}")]
OPERATOR: Headers = [("authorization", f"Bearer {OLGA}")]
JSON = ("content-type", "application/json")
HOOK = "https://hooks.example.com/a2a"


async def echo(ctx: TaskContext) -> None:
    if ctx.user_text == "wait":
        await ctx.request_input("Well?")
    else:
        await ctx.complete(ctx.user_text)


@contextlib.asynccontextmanager
async def agent(**settings: Any) -> AsyncIterator[A2AServer]:
    people: dict[str, Principal | str] = {ALICE: "alice", OLGA: Principal("olga", roles=frozenset({"operator"}))}
    card = AgentCardConfig(
        name="A", description="Calls back.", capabilities=CapabilitiesConfig(streaming=True, push_notifications=True)
    )
    async with A2AServer(
        worker=echo,
        agent_card=card,
        auth=TokenAuthenticator.of(people),
        settings=ServerSettings.of({}, **{"webhook_loopback": True, **settings}),
    ) as server:
        yield server


def message(text: str, number: int = 1) -> dict[str, Any]:
    return {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": text}]}


async def send(app: ASGIApp, text: str, config: dict[str, Any] | None = None, *, method: str = "SendMessage") -> Reply:
    params: dict[str, Any] = {"message": message(text)}
    if config is not None:
        params["configuration"] = {"taskPushNotificationConfig": config}
    return await call(app, method, params, headers=KNOWN)


async def create(app: ASGIApp, task_id: str, config: dict[str, Any]) -> Reply:
    return await call(app, "CreateTaskPushNotificationConfig", {"taskId": task_id, **config}, headers=KNOWN)


def secret_in(reply: Reply) -> str:
    secret = reply.header("webhook-secret")
    assert secret is not None
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    return secret


# ------------------------------------------------------------------------------------------------------------ secrets


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_the_token_signs_nothing(method: str) -> None:
    """Deliveries carry the token; a party that has read one can't forge another."""
    async with receiving() as receiver, agent() as server:
        sent = await send(server.app, "hi", {"id": "c", "url": receiver.url, "token": "the token"}, method=method)
        secret = secret_in(sent)
        await until(lambda: len(receiver.arrivals) >= 3)
        for arrival in receiver.arrivals:
            assert arrival.headers["x-a2a-notification-token"] == "the token"
            assert not verify("the token", arrival.headers, arrival.body)
            assert verify(secret, arrival.headers, arrival.body)
            assert secret not in str(arrival.headers)


async def test_a_secret_is_shown_once() -> None:
    """Only the response to the request that created it has the secret; a read, a repeat or a list does not."""
    async with agent() as server:
        app = server.app
        sent = await send(app, "wait", {"id": "c", "url": HOOK})
        first = secret_in(sent)
        assert (await send(app, "wait", {"id": "c", "url": HOOK})).header("webhook-secret") is None
        task_id = sent.json["result"]["task"]["id"]
        made = await create(app, task_id, {"id": "d", "url": HOOK})
        second = secret_in(made)
        assert first != second
        again = await create(app, task_id, {"id": "d", "url": HOOK})
        replaced = await create(app, task_id, {"id": "d", "url": f"{HOOK}/other"})
        reads = [
            again,
            replaced,
            await call(app, "GetTaskPushNotificationConfig", {"taskId": task_id, "id": "d"}, headers=KNOWN),
            await call(app, "ListTaskPushNotificationConfigs", {"taskId": task_id}, headers=KNOWN),
            await ask(app, "GET", f"{PREFIX}/tasks/{task_id}/webhooks", headers=KNOWN),
            await ask(app, "GET", f"{PREFIX}/webhooks", query="owner=alice", headers=OPERATOR),
        ]
        for reply in reads:
            assert reply.header("webhook-secret") is None
            assert first.encode() not in reply.body
            assert second.encode() not in reply.body
        for body in (sent.body, made.body):
            assert b"whsec_" not in body, "the protocol has no field for it"
        rest = await ask(
            app,
            "POST",
            f"/tasks/{task_id}/pushNotificationConfigs",
            headers=[*KNOWN, JSON],
            body=b'{"id": "e", "url": "https://hooks.example.com/"}',
        )
        secret_in(rest)


async def test_a_secret_can_be_renewed() -> None:
    async with receiving() as receiver, agent() as server:
        app = server.app
        sent = await send(app, "wait", {"id": "c", "url": receiver.url})
        task_id = sent.json["result"]["task"]["id"]
        path = f"{PREFIX}/tasks/{task_id}/webhooks/c/secret"
        renewed = await ask(app, "POST", path, headers=[*KNOWN, JSON])
        assert renewed.status == 200
        assert renewed.json["secret"] != secret_in(sent)
        stranger = await ask(app, "POST", path.replace("/c/", "/unknown/"), headers=[*KNOWN, JSON])
        assert stranger.status == 404
        await until(lambda: len(receiver.arrivals) >= 3)
        seen = len(receiver.arrivals)
        more = {"message": {**message("over", 2), "taskId": task_id}}
        await call(app, "SendMessage", more, headers=KNOWN)
        await until(lambda: len(receiver.arrivals) >= seen + 2)
        last = receiver.arrivals[-1]
        assert verify(renewed.json["secret"], last.headers, last.body)
        assert not verify(secret_in(sent), last.headers, last.body)


async def test_over_grpc_the_secret_is_in_the_trailing_metadata() -> None:
    async with talking() as talk:
        task = await talk.send("ask")
        config = PB.TaskPushNotificationConfig(task_id=task.id, id="c", url=HOOK)
        made = talk.stub.CreateTaskPushNotificationConfig(config)
        await made
        assert dict(await made.trailing_metadata())["webhook-secret"].startswith("whsec_")


async def test_ids_have_no_dots() -> None:
    """The signed text is id.timestamp.body: a dot in the id would make the end of the id ambiguous."""
    async with receiving() as receiver, agent() as server:
        await send(server.app, "hi", {"id": "a.1614265330.b:c", "url": receiver.url})
        await until(lambda: len(receiver.arrivals) >= 3)
        ids = [arrival.headers["webhook-id"] for arrival in receiver.arrivals]
        assert len(set(ids)) == len(ids)
        for each in ids:
            assert "." not in each
            assert each.count(":") == 2


@pytest.mark.parametrize(
    "config",
    [
        {"token": "t" * (MAX_TOKEN + 1)},
        {"authentication": {"scheme": "Bearer", "credentials": "c" * (MAX_CREDENTIALS + 1)}},
        {"authentication": {"scheme": "S" * (MAX_SCHEME + 1), "credentials": "c"}},
    ],
)
async def test_values_in_headers_are_bounded(config: dict[str, Any]) -> None:
    async with agent() as server:
        sent = await send(server.app, "wait", {"url": HOOK, **config})
        assert sent.json["error"]["code"] == -32602
        task_id = (await send(server.app, "wait")).json["result"]["task"]["id"]
        assert (await create(server.app, task_id, {"url": HOOK, **config})).json["error"]["code"] == -32602


# ---------------------------------------------------------------------------------------------------------- receivers

ALLOWED = ("hooks.example.com", "*.partner.example")


@pytest.mark.parametrize(
    "host", ["hooks.example.com", "HOOKS.example.com.", "a.partner.example", "a.b.partner.example:8443"]
)
def test_allowed_hosts(host: str) -> None:
    check_url(f"https://{host}/", hosts=ALLOWED)


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "evil.example",
        "partner.example",
        "evilpartner.example",
        "hooks.example.com.evil.example",
        "a.hooks.example.com",
        "partner.example.evil.example",
        "8.8.8.8",
    ],
)
async def test_no_other_hosts(host: str) -> None:
    with pytest.raises(AddressNotAllowed):
        check_url(f"https://{host}/", hosts=ALLOWED)
    answered = await Poster(hosts=ALLOWED).post(f"https://{host}/", b"{}", {})
    assert (answered.ok, answered.category) == (False, "address")


async def test_the_setting_holds_for_configs() -> None:
    async with agent(webhook_hosts=ALLOWED) as server:
        sent = await send(server.app, "wait", {"url": "https://evil.example/"})
        assert "not among the hosts" in sent.json["error"]["message"]
        sent = await send(server.app, "wait", {"url": HOOK})
        task_id = sent.json["result"]["task"]["id"]
        made = await create(server.app, task_id, {"url": "https://evil.example/"})
        assert "not among the hosts" in made.json["error"]["message"]


# ------------------------------------------------------------------------------------------------------------- errors


async def test_callers_see_the_category_and_operators_the_cause() -> None:
    """A cause such as "connection refused", or a status, would reveal internal services."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        closed = f"http://127.0.0.1:{bound.getsockname()[1]}/"
    async with agent() as server:
        sent = await send(server.app, "wait", {"id": "c", "url": closed})
        task_id = sent.json["result"]["task"]["id"]
        paths = [f"{PREFIX}/tasks/{task_id}/webhooks", f"{PREFIX}/webhooks"]

        async def failed() -> bool:
            reply = await ask(server.app, "GET", paths[0], headers=KNOWN)
            return bool(reply.json["webhooks"][0]["error"])

        await until(failed, seconds=30)
        for path in paths:
            [mine] = (await ask(server.app, "GET", path, headers=KNOWN)).json["webhooks"]
            assert (mine["error"], mine["category"], mine["httpStatus"]) == ("connection", "connection", None)
            [cause] = (await ask(server.app, "GET", path, query="owner=alice", headers=OPERATOR)).json["webhooks"]
            assert cause["error"].startswith("no connection: ")


def test_secrets_are_in_no_repr() -> None:
    config = PushConfig(id="c", url=HOOK, token="hidden", authentication=Authentication(scheme="B", credentials="hid"))
    assert config.token == "hidden"
    assert "hidden" not in repr(ServerSettings(webhook_secret="hidden", secret_key="hidden" * 8))
