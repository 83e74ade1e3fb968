"""Section 10 of the design of apcore agents: authentication, authorization, and hidden information."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from typing import Any

import jwt
import pytest
from apcore import ACL, ACLRule, Identity
from apcore.errors import CallDepthExceededError, CallFrequencyExceededError, CircularCallError

from keelbolt.apcore import CallerApproves
from keelbolt.auth import APIKeyAuthenticator, ClaimMapping, JWTAuthenticator, new_secret
from keelbolt.kernel import new_id
from tests.integration.apcore.calling import output, send, state, status_text, task_of
from tests.integration.apcore.modules import Deploy, Echo, Giving, Whoami, executor_of, registry_of
from tests.integration.apcore.serving import server_of, serving
from tests.integration.server.asgi import Headers, ask, call, rpc

SECRET = "a secret of the tests, of more than 32 bytes"
MAPPING = ClaimMapping(attrs_claims=("department",))


def authenticator() -> JWTAuthenticator:
    return JWTAuthenticator(SECRET, issuer="https://idp.example", audience="shop", claim_mapping=MAPPING)


def token(*, secret: str = SECRET, algorithm: str = "HS256", **changed: Any) -> str:
    now = int(time.time())
    found = {"sub": "ann", "iss": "https://idp.example", "aud": "shop", "exp": now + 600, **changed}
    return jwt.encode({name: value for name, value in found.items() if value is not None}, secret, algorithm=algorithm)


def bearer(**changed: Any) -> Headers:
    return [("authorization", f"Bearer {token(**changed)}")]


def unsigned() -> str:
    """Return a token that claims to need no signature."""
    parts = [{"alg": "none", "typ": "JWT"}, {"sub": "ann", "iss": "https://idp.example", "aud": "shop", "exp": 2**33}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


# ------------------------------------------------------------------------------------------------------ 10.1 the flow


async def test_section_10_1_missing_credentials_are_requested() -> None:
    async with serving(registry_of(echo=Echo()), auth=authenticator()) as app:
        reply = await send(app, {"text": "hi"}, skill="echo")
        assert reply.status == 401
        assert (reply.header("www-authenticate") or "").startswith("Bearer")
        assert (await send(app, {"text": "hi"}, skill="echo", headers=bearer())).status == 200


async def test_section_10_1_public_paths_are_exact() -> None:
    async with serving(registry_of(echo=Echo()), auth=authenticator(), metrics=True, explorer=True) as app:
        for path in ("/.well-known/agent.json", "/.well-known/agent-card.json", "/health", "/metrics", "/explorer/"):
            assert (await ask(app, "GET", path)).status == 200, path
        message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"data": {"text": "in"}}]}
        body = json.dumps({"message": {**message, "metadata": {"skillId": "echo"}}}).encode()
        headers = [("content-type", "application/json"), ("a2a-version", "1.0")]
        for prefix in ("", "/explorerfoo", "/explorer", "/explorer/x", "/explorer/..", "/health", "/.well-known/x"):
            reply = await ask(app, "POST", f"{prefix}/message:send", headers=headers, body=body)
            assert reply.status in (401, 404, 405), prefix
            assert (await ask(app, "POST", f"{prefix}/", headers=headers, body=rpc("ListTasks", {}))).status != 200
        for path in ("/explorerfoo/tasks", "/explorer1/tasks", "/explorer/tasks", "/metricsx"):
            assert (await ask(app, "GET", path, headers=headers)).status in (401, 404), path
        listed = (await call(app, "ListTasks", {}, headers=bearer())).json["result"]
        assert listed["tasks"] == []


# --------------------------------------------------------------------------------------------------------- 10.2 tokens


@pytest.mark.parametrize(
    "made",
    [
        lambda: token(secret="another secret of more than 32 bytes"),
        lambda: token(exp=int(time.time()) - 60),
        lambda: token(exp=None),
        lambda: token(iss="https://other.example"),
        lambda: token(iss=None),
        lambda: token(aud="another-shop"),
        lambda: token(aud=None),
        lambda: token(sub=None),
        lambda: token(nbf=int(time.time()) + 600),
        lambda: token(secret=SECRET * 2, algorithm="HS512"),
        unsigned,
        lambda: "garbage",
        lambda: "",
        lambda: "a.b.c",
    ],
    ids=[
        "key",
        "expired",
        "endless",
        "issuer",
        "no-issuer",
        "aud",
        "no-aud",
        "sub",
        "early",
        "hs512",
        "none",
        "x",
        "",
        "3",
    ],
)
async def test_section_10_2_invalid_tokens(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    given = made()
    async with serving(registry_of(echo=Echo()), auth=authenticator()) as app:
        with caplog.at_level(logging.INFO):
            reply = await send(app, {"text": "hi"}, skill="echo", headers=[("authorization", f"Bearer {given}")])
        assert reply.status == 401
        assert not given or given.encode() not in reply.body
        assert "authentication failed" not in caplog.text  # scanners would fill the log; logged at debug level
        assert (await call(app, "ListTasks", {}, headers=bearer())).json["result"]["tasks"] == []


# ------------------------------------------------------------------------------------------------- 10.3 and 10.4


async def test_section_10_3_claims_become_the_identity() -> None:
    class Attrs(Whoami):
        async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
            return {**await super().execute(inputs, context), "attrs": dict(context.identity.attrs)}

    async with serving(registry_of(who=Attrs()), auth=authenticator()) as app:
        reply = await send(app, {}, skill="who", headers=bearer(type="service", roles=["admin"], department="sales"))
        who = output(reply.json["result"]["task"])
        assert (who["id"], who["type"], who["roles"]) == ("ann", "service", ["admin"])
        assert who["attrs"] == {"department": "sales"}
        who = output((await send(app, {}, skill="who", headers=bearer())).json["result"]["task"])
        assert (who["type"], who["roles"], who["attrs"]) == ("user", [], {})


async def test_section_10_3_an_authenticator_can_return_apcore_s_identity() -> None:
    class Names:
        def authenticate(self, headers: dict[str, str]) -> Identity | None:
            name = headers.get("x-name")
            return Identity(name, "service", ("reader",), {"floor": 3}) if name else None

        def security_schemes(self) -> list[dict[str, str]]:
            return [{"type": "apiKey", "in": "header", "name": "X-Name"}]

    async with serving(registry_of(who=Whoami()), auth=Names()) as app:
        who = output((await send(app, {}, skill="who", headers=[("x-name", "bob")])).json["result"]["task"])
        assert (who["id"], who["type"], who["roles"]) == ("bob", "service", ["reader"])
        assert (await send(app, {}, skill="who")).status == 401


async def test_section_10_3_the_acl_uses_the_identity() -> None:
    rules = [
        ACLRule(callers=["*"], targets=["secret"], effect="allow", conditions={"roles": ["admin"]}),
        ACLRule(callers=["*"], targets=["open"], effect="allow"),
    ]
    executor = executor_of(registry_of(secret=Echo(), open=Echo()), acl=ACL(rules, default_effect="deny"))
    async with serving(executor, auth=authenticator()) as app:
        card = (await ask(app, "GET", "/.well-known/agent.json")).json
        assert [skill["id"] for skill in card["skills"]] == ["open"]
        extended = await ask(app, "GET", "/agent/authenticatedExtendedCard", headers=bearer(roles=["admin"]))
        assert extended.status == 200
        assert [skill["id"] for skill in extended.json["skills"]] == ["open", "secret"]
        assert (await ask(app, "GET", "/agent/authenticatedExtendedCard")).status == 401
        allowed = await send(app, {"text": "hi"}, skill="secret", headers=bearer(roles=["admin"]))
        assert output(allowed.json["result"]["task"]) == {"text": "hi"}
        denied = await send(app, {"text": "hi"}, skill="secret", headers=bearer())
        assert "error" in denied.json
    async with serving(executor) as app:  # without authentication there is no extended card
        assert (await ask(app, "GET", "/agent/authenticatedExtendedCard")).status == 404


async def test_section_10_3_approvals_have_the_approver() -> None:
    executor = executor_of(registry_of(deploy=Deploy()), approval_handler=CallerApproves())
    async with serving(executor, auth=authenticator()) as app:
        asked = (await send(app, {"text": "v3"}, skill="deploy", headers=bearer())).json["result"]["task"]
        assert state(asked) == "input_required"
        stranger = await send(app, "approved", taskId=asked["id"], headers=bearer(sub="eve"))
        assert "error" in stranger.json  # it is not eve's task
        done = (await send(app, "approved", taskId=asked["id"], headers=bearer())).json["result"]["task"]
        assert output(done) == {"deployed": "v3"}


@pytest.mark.parametrize(
    ("auth", "scheme"),
    [
        (authenticator(), {"type": "http", "scheme": "bearer"}),
        (APIKeyAuthenticator.of({new_secret(): "ann"}), {"type": "apiKey", "in": "header", "name": "X-API-Key"}),
    ],
)
async def test_section_10_4_the_card_has_the_security_schemes(auth: Any, scheme: dict[str, str]) -> None:
    async with serving(registry_of(echo=Echo()), auth=auth) as app:
        card = (await ask(app, "GET", "/.well-known/agent.json")).json
    [published] = card["securitySchemes"].values()
    assert scheme.items() <= published.items()
    async with serving(registry_of(echo=Echo())) as app:
        assert "securitySchemes" not in (await ask(app, "GET", "/.well-known/agent.json")).json


# ------------------------------------------------------------------------------------------ 10.5 hidden information


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("password=hunter2 in /etc/shop/secrets.yaml line 3"), "Internal error"),
        (CallDepthExceededError(33, 32, ["a", "b"]), "Safety limit exceeded"),
        (CircularCallError("a", ["a", "b", "a"]), "Safety limit exceeded"),
        (CallFrequencyExceededError("a", 4, 3, ["a"]), "Safety limit exceeded"),
    ],
)
async def test_section_10_5_errors_of_modules_leak_no_secrets(
    error: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    giving = Giving(error)
    giving.output_schema = Whoami.output_schema
    async with serving(registry_of(giving=giving)) as app:
        task = await task_of(app, {}, skill="giving")
    assert (state(task), status_text(task)) == ("failed", words)
    for secret in ("hunter2", "/etc/shop", "Traceback", "a, b"):
        assert secret not in json.dumps(task)
    assert any(record.levelno >= logging.ERROR and record.exc_info for record in caplog.records)


async def test_section_10_5_denied_and_unknown_skills_look_the_same(caplog: pytest.LogCaptureFixture) -> None:
    acl = ACL([ACLRule(callers=["*"], targets=["open"], effect="allow")], default_effect="deny")
    async with serving(executor_of(registry_of(open=Echo(), hidden=Echo()), acl=acl)) as app:
        denied = await send(app, {"text": "hi"}, skill="hidden")
        unknown = await send(app, {"text": "hi"}, skill="hiddem")
        assert denied.masked("hidden") == unknown.masked("hiddem")
    assert any(record.levelno == logging.WARNING and "hidden" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/a2a",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://localhost/",
        "https://10.1.2.3/",
        "https://172.16.0.1/",
        "https://192.168.1.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://2130706433/",
        "file:///etc/passwd",
        "not a url",
    ],
)
async def test_section_10_5_webhooks_to_private_networks_are_refused(url: str) -> None:
    async with serving(registry_of(echo=Echo()), push_notifications=True) as app:
        task = await task_of(app, {"text": "hi"}, skill="echo")
        reply = (await call(app, "tasks/pushNotificationConfig/set", {"taskId": task["id"], "url": url})).json
        assert reply["error"]["code"] == -32602


# ----------------------------------------------------------------------------------------------------------- 10.6 CORS


async def test_section_10_6_cors(caplog: pytest.LogCaptureFixture) -> None:
    origin = [("origin", "https://page.example")]
    asking = [*origin, ("access-control-request-method", "POST"), ("access-control-request-headers", "authorization")]
    for origins, answered in ((None, None), (["https://page.example"], "https://page.example"), (["*"], "*")):
        caplog.clear()
        async with serving(registry_of(echo=Echo()), cors_origins=origins) as app:
            reply = await ask(app, "GET", "/.well-known/agent.json", headers=origin)
            assert reply.header("access-control-allow-origin") == answered
            if origins:
                preflight = await ask(app, "OPTIONS", "/", headers=asking)
                assert preflight.status == 200
                assert "POST" in (preflight.header("access-control-allow-methods") or "")
                assert "authorization" in (preflight.header("access-control-allow-headers") or "").lower()
        warned = [record for record in caplog.records if "CORS" in record.getMessage()]
        assert bool(warned) is (origins == ["*"])
    async with serving(registry_of(echo=Echo()), cors_origins=["https://page.example"]) as app:
        reply = await ask(app, "GET", "/health", headers=[("origin", "https://evil.example")])
        assert reply.header("access-control-allow-origin") is None


async def test_section_10_the_acl_applies_to_modules_registered_later() -> None:
    acl = ACL([ACLRule(callers=["*"], targets=["open"], effect="allow")], default_effect="deny")
    registry = registry_of(open=Echo())
    async with serving(executor_of(registry, acl=acl)) as app:
        await asyncio.to_thread(registry.register, "later", Echo())
        assert "error" in (await send(app, {"text": "hi"}, skill="later")).json
        assert len(server_of(app).catalog) == 2
        card = (await ask(app, "GET", "/.well-known/agent.json")).json
        assert [skill["id"] for skill in card["skills"]] == ["open"]
