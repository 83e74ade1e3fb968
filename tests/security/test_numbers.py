"""Attacks: numbers and names that the storage can't hold must not cause an internal error."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.types import ASGIApp

from keelbolt.auth import ClaimMapping, Principal, Resolver
from keelbolt.errors import CredentialsRefused
from keelbolt.operations.table import PREFIX, ROUTES
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from keelbolt.tasks.settings import TaskSettings
from tests.integration.server.asgi import Headers, Reply, ask, call
from tests.integration.server.people import SECRET, authenticator, bearer
from tests.integration.tasks.conftest import ENGINES, store_url

JSON = ("content-type", "application/json")

NUMBERS = [
    2**31,
    2**31 - 1,
    -(2**31),
    -(2**31) - 1,
    2**32,
    2**53,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    10**400,
    1.5,
    1e300,
    True,
    "1",
    "9" * 40,
    None,
    [],
]


async def wait(ctx: TaskContext) -> None:
    if ctx.user_text == "run":
        await asyncio.Event().wait()
    await ctx.request_input("Well?")


@pytest.fixture(params=ENGINES)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ASGIApp]:
    async with served(store_url(request.param, request, tmp_path)) as app:
        yield app


@contextlib.asynccontextmanager
async def served(storage: str = "memory:", **more: Any) -> AsyncIterator[ASGIApp]:
    card = AgentCardConfig(
        name="A", description="…", capabilities=CapabilitiesConfig(streaming=True, push_notifications=True)
    )
    settings = ServerSettings.of({}, failed_logins=0)
    more.setdefault("auth", authenticator())
    quick = TaskSettings.of({}, drain_seconds=0.2)
    async with A2AServer(
        worker=wait, agent_card=card, storage=storage, settings=settings, task_settings=quick, **more
    ) as server:
        yield server.app


async def start(app: ASGIApp, who: Headers, text: str = "hi") -> Reply:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    configuration = {"returnImmediately": text == "run"}
    return await call(app, "SendMessage", {"message": message, "configuration": configuration}, headers=who)


async def test_the_priority_of_steering(app: ASGIApp) -> None:
    who = bearer("alice")
    task_id = (await start(app, who, "run")).json["result"]["task"]["id"]
    for number in NUMBERS:
        body = json.dumps({"kind": "prioritise", "payload": {"priority": number}}).encode()
        reply = await ask(app, "POST", f"{PREFIX}/tasks/{task_id}/steer", headers=[*who, JSON], body=body)
        fits = type(number) is int and abs(number) < 2**31
        assert reply.status == (200 if fits else 400), (number, reply.body)


async def test_every_number_of_the_operations_api(app: ASGIApp) -> None:
    who = bearer("alice", roles=["operator:all"])
    task_id = (await start(app, who)).json["result"]["task"]["id"]
    names = ("after", "limit", "pageSize", "seq", "since", "until", "pageToken")
    for route in ROUTES:
        if route.stream or route.name in ("erase_task", "erase_context"):
            continue
        path = PREFIX + route.path.replace("{task_id}", task_id)
        path = path.replace("{", "").replace("}", "")
        given = [name for name, _ in (*route.query, *route.body) if name in names]
        for name in given:
            for number in NUMBERS:
                text = quote(str(number)[:500])
                reply = await ask(app, route.method, path, query=f"{name}={text}", headers=[*who, JSON], body=b"{}")
                assert reply.status < 500, (route.name, name, number, reply.body)
                if route.method == "POST":
                    body = json.dumps({name: number}).encode()
                    reply = await ask(app, route.method, path, headers=[*who, JSON], body=body)
                    assert reply.status < 500, (route.name, name, number, reply.body)


async def test_every_number_of_the_protocol(app: ASGIApp) -> None:
    who = bearer("alice")
    task_id = (await start(app, who)).json["result"]["task"]["id"]
    resume = "https://keelbolt.dev/extensions/resume/v1"
    for number in NUMBERS:
        message = {"messageId": f"n{NUMBERS.index(number)}", "role": "ROLE_USER", "parts": [{"data": {"n": number}}]}
        asked: list[tuple[str, dict[str, Any]]] = [
            ("GetTask", {"id": task_id, "historyLength": number}),
            ("ListTasks", {"pageSize": number}),
            ("ListTasks", {"historyLength": number}),
            ("ListTasks", {"statusTimestampAfter": number}),
            ("ListTaskPushNotificationConfigs", {"taskId": task_id, "pageSize": number}),
            (
                "SendMessage",
                {"message": message, "configuration": {"historyLength": number}, "metadata": {"n": number}},
            ),
            ("tasks/get", {"id": task_id, "historyLength": number}),
            ("GetTask", {"id": task_id, "metadata": {resume: {"afterSeq": number}}}),
        ]
        for method, params in asked:
            reply = await call(app, method, params, headers=who)
            error = reply.json.get("error", {"code": 0})
            assert error["code"] != -32603, (method, params, reply.body)
        for name in ("historyLength", "pageSize", "afterSeq"):
            text = quote(str(number)[:500])
            reply = await ask(app, "GET", "/tasks", query=f"{name}={text}", headers=who)
            assert reply.status < 500, (name, number)
        reply = await ask(app, "GET", f"/tasks/{task_id}", headers=[*who, ("last-event-id", str(number)[:500])])
        assert reply.status < 500, number


# ---------------------------------------------------------------------------------------------------------- names


def forged(payload: bytes) -> Headers:
    """Return a token with these bytes as its payload, signed with the right key."""

    def text(raw: bytes) -> bytes:
        return base64.urlsafe_b64encode(raw).rstrip(b"=")

    signed = text(b'{"alg":"HS256","typ":"JWT"}') + b"." + text(payload)
    token = signed + b"." + text(hmac.digest(SECRET.encode(), signed, "sha256"))
    return [("authorization", f"Bearer {token.decode()}")]


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "alice", "tenant": "acme", "aud": "agent", "exp": int(time.time()) + 600, **more}


HALF = "\ud800"
HALVES = [
    {"sub": HALF},
    {"sub": f"alice{HALF}"},
    {"sub": "\udfff"},
    {"tenant": HALF},
    {"roles": [HALF]},
    {"roles": HALF},
    {"type": HALF},
    {"email": HALF},
    {"email": {"deep": [HALF]}},
    {HALF: "name"},
]


@pytest.mark.parametrize("wrong", HALVES, ids=json.dumps)
async def test_a_claim_with_a_lone_surrogate_is_refused(wrong: dict[str, Any]) -> None:
    mapping = ClaimMapping(tenant_claim="tenant", attrs_claims=("email",))
    async with served(auth=authenticator(claim_mapping=mapping)) as app:
        reply = await start(app, forged(json.dumps(claims(**wrong)).encode()))
        assert reply.status == 401
        reply = await ask(app, "GET", f"{PREFIX}/whoami", headers=forged(json.dumps(claims(**wrong)).encode()))
        assert reply.status == 401


STRANGE = [
    "\0",
    "a\0b",
    "\x1b[2J",
    "\u202ealice",
    "😀",
    "e\u0301",
    "/",
    "//",
    "..",
    "%00",
    "x" * 5000,
    " ",
    "~anonymous",
]


@pytest.mark.parametrize("name", STRANGE, ids=lambda name: ascii(name)[:20])
async def test_every_other_name_can_be_stored(app: ASGIApp, name: str) -> None:
    for claim in ("sub", "tenant", "type"):
        who = forged(json.dumps(claims(**{claim: name})).encode())
        sent = await start(app, who)
        assert sent.status == 200, sent.body
        task_id = sent.json["result"]["task"]["id"]
        assert (await ask(app, "GET", f"/tasks/{task_id}", headers=who)).status == 200
    escaped = json.dumps(claims(sub="😀")).encode()
    assert b"\\ud83d\\ude00" in escaped, "a whole pair is a character"
    assert (await start(app, forged(escaped))).status == 200


async def test_other_authenticators_are_checked_too() -> None:
    class Odd:
        def authenticate(self, _headers: dict[str, str]) -> Principal:
            return Principal("alice", tenant=HALF)

        def security_schemes(self) -> list[dict[str, Any]]:
            return [{"type": "http", "scheme": "bearer"}]

    with pytest.raises(CredentialsRefused):
        await Resolver(Odd()).principal({})
