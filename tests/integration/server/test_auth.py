"""Authentication at every entry, exact exemptions, and the caller's identity in the worker."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.types import ASGIApp

from keelbolt.auth import (
    AnyOf,
    APIKeyAuthenticator,
    ClaimMapping,
    JWKSCache,
    JWTAuthenticator,
    Principal,
    TokenAuthenticator,
    auth_identity_var,
)
from keelbolt.errors import AuthMisconfigured, RateLimitedError
from keelbolt.kernel import new_id
from keelbolt.operations.table import PREFIX
from keelbolt.operations.table import ROUTES as OPERATIONS
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig, SkillConfig
from keelbolt.server import A2AServer
from keelbolt.server.caller import Caller
from keelbolt.server.gate import RequestLimiter
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from tests.integration.server.asgi import Headers, Reply, ask, call
from tests.integration.server.entries import ENTRIES, Entry, RequestFields, send_fields
from tests.integration.server.people import authenticator, bearer
from tests.unit.auth.issuer import ISSUER, KeySetServer, jwk, token

CAPABILITIES = CapabilitiesConfig(streaming=True, push_notifications=True, extended_agent_card=True)
CARD = AgentCardConfig(name="Agent", description="Knows its callers.", capabilities=CAPABILITIES)

KEY, KNOWN = "a key of the tests", "a-token-of-the-tests"


async def tell(ctx: TaskContext) -> None:
    """Return the caller as the worker sees it, and as the code that it calls sees it."""
    await asyncio.sleep(0)
    acting = auth_identity_var.get()
    shown = [f"{who.tenant}/{who.owner}" for who in (ctx.principal, acting) if who is not None]
    await ctx.complete(" ".join(shown))


async def greeting(caller: Caller) -> AgentCardConfig:
    await asyncio.sleep(0)
    acting = auth_identity_var.get()
    skills = [SkillConfig(id="x", name=f"for {acting.owner if acting else None}", description="…")]
    return CARD.model_copy(update={"name": f"The agent of {caller.principal.owner}", "skills": skills})


@contextlib.asynccontextmanager
async def agent(**more: Any) -> AsyncIterator[ASGIApp]:
    more = {"worker": tell, "agent_card": CARD, "auth": authenticator(), "extended_card": greeting, **more}
    async with A2AServer(**more) as server:
        yield server.app


def message(text: str = "Hello", **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": text}], **more}}


def reply_text(reply: Reply) -> str:
    """Return the text of the response."""
    task = reply.json["result"]["task"]
    parts = task["artifacts"][0]["parts"] if "artifacts" in task else task["status"]["message"]["parts"]
    text: str = parts[0]["text"]
    return text


# ---------------------------------------------------------------------------------------------------- authentication

BAD_TOKENS: dict[str, Callable[[], Headers]] = {
    "expired": lambda: bearer("alice", expires_in=-3600),
    "no tenant": lambda: bearer("alice", None),
    "garbage": lambda: [("authorization", "Bearer x.y.z")],
    "empty": lambda: [("authorization", "Bearer ")],
    "another scheme": lambda: [("authorization", "Basic YWxpY2U6eA==")],
    "a megabyte": lambda: [("authorization", "Bearer " + "x" * 60_000)],
    "twice": lambda: [*bearer("alice"), *bearer("bob")],
    "not ASCII": lambda: [("authorization", "Bearer \xe9\xff")],
}


@pytest.mark.parametrize("wrong", BAD_TOKENS)
async def test_unauthenticated_callers_get_401_in_every_binding(wrong: str) -> None:
    """Every binding responds with 401 and a challenge, and does not repeat the credentials."""
    async with agent(settings=ServerSettings.of({}, failed_logins=0)) as app:
        for entry in ENTRIES:
            reply = await send_fields(
                app, entry, RequestFields(task="t", config="c", tenant="acme"), BAD_TOKENS[wrong]()
            )
            assert reply.status == 401, entry
            assert (reply.header("www-authenticate") or "").startswith("Bearer realm="), entry
            assert b"x.y.z" not in reply.body
            if not entry.path:
                assert reply.json["error"]["code"] == -32600


@pytest.mark.parametrize("wrong", [wrong for wrong in BAD_TOKENS if wrong != "empty"])
async def test_wrong_credentials_are_refused_even_where_none_are_required(wrong: str) -> None:
    """A caller with credentials expects its identity; as an anonymous caller it would not find its tasks."""
    async with agent(require_auth=False) as app:
        assert (await call(app, "ListTasks", {}, headers=BAD_TOKENS[wrong]())).status == 401


async def test_without_required_authentication_every_caller_is_served() -> None:
    async with agent(require_auth=False) as app:
        assert reply_text(await call(app, "SendMessage", message())) == "/ /"
        assert reply_text(await call(app, "SendMessage", message(), headers=bearer("alice"))) == "acme/alice acme/alice"
        anonymous = await call(app, "ListTasks", {})
        alice = await call(app, "ListTasks", {}, headers=bearer("alice"))
        assert [page.json["result"]["totalSize"] for page in (anonymous, alice)] == [1, 1]
        ids = {page.json["result"]["tasks"][0]["id"] for page in (anonymous, alice)}
        assert len(ids) == 2


async def test_the_extended_card_is_for_authenticated_callers() -> None:
    async with agent(require_auth=False) as app:
        for entry in ENTRIES:
            if entry.operation.value == "GetExtendedAgentCard":
                reply = await send_fields(app, entry, RequestFields(tenant="acme" if entry.tenant else ""))
                assert reply.status == 401, entry
                assert reply.header("www-authenticate") is not None


async def test_api_keys_and_tokens_together() -> None:
    auth = AnyOf(
        authenticator(),
        APIKeyAuthenticator.of({KEY: Principal("billing", "acme")}),
        TokenAuthenticator.of({KNOWN: Principal("robot", "acme")}),
    )
    async with agent(auth=auth) as app:
        for headers, who in (
            (bearer("alice"), "acme/alice"),
            ([("x-api-key", KEY)], "acme/billing"),
            ([("authorization", f"Bearer {KNOWN}")], "acme/robot"),
        ):
            assert reply_text(await call(app, "SendMessage", message(), headers=headers)) == f"{who} {who}"
        refused = await call(app, "ListTasks", {}, headers=[("x-api-key", "other")])
        assert refused.status == 401
        assert "ApiKey" in (refused.header("www-authenticate") or "")


# -------------------------------------------------------------------------------------------------- exact exemptions

PUBLIC = ("/.well-known/agent-card.json", "/.well-known/agent.json", "/live", "/health", "/ready")


@pytest.mark.parametrize("path", PUBLIC)
async def test_card_and_health_are_public(path: str) -> None:
    async with agent() as app:
        assert (await ask(app, "GET", path)).status == 200
        assert (await ask(app, "GET", path, headers=[("authorization", "Bearer nonsense")])).status == 200


NEAR = [
    f"{before}{path}{after}"
    for path in ("/health", "/.well-known/agent-card.json", "/explorer")
    for before, after in (("", "/message:send"), ("", "x/message:send"), ("", "/tasks"), ("", "foo/tasks"))
]


@pytest.mark.parametrize("path", NEAR)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_path_that_begins_like_a_public_one_is_not_public(path: str, method: str) -> None:
    """Only the exact path is exempt: no path below or beside it, for any method."""
    async with agent() as app:
        body = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}'
        reply = await ask(app, method, path, body=body, headers=[("content-type", "application/json")])
        assert reply.status in (401, 404)
        assert b"task" not in reply.body.replace(b"tasks", b"").lower() or reply.status == 401


async def test_every_path_but_the_public_ones_needs_authentication() -> None:
    """Of all paths of all tables, only the public ones serve anonymous callers."""
    paths = {("POST", "/")}
    paths |= {
        (entry.method, entry.path.format(id="t", task="t", config="c", tenant="acme"))
        for entry in ENTRIES
        if entry.path
    }
    paths |= {(route.method, PREFIX + re.sub(r"\{\w+\}", "x", route.path)) for route in OPERATIONS}
    async with agent() as app:
        for method, path in sorted(paths):
            assert (await ask(app, method, path)).status == 401, path


@pytest.mark.parametrize("prefixes", [["/explorer"], (), "/public", {"/x"}])
def test_exempt_prefixes_are_refused_with_the_reason(prefixes: Any) -> None:
    with pytest.raises(AuthMisconfigured, match=r"a prefix also exempts .*exact paths"):
        A2AServer(worker=tell, agent_card=CARD, auth=authenticator(), exempt_prefixes=prefixes)


# --------------------------------------------------------------------------------------------- unavailable key set


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if not entry.tenant], ids=str)
async def test_without_the_key_set_authentication_is_unavailable(entry: Entry) -> None:
    """Every binding responds with 503 and Retry-After, not 401: the caller's token may be valid."""
    auth = JWTAuthenticator(jwks_url="http://127.0.0.1:9/jwks.json", issuer=ISSUER, audience="my-agent")
    async with agent(auth=auth) as app:
        headers = [("authorization", f"Bearer {token('ES256', headers={'kid': 'key-1'})}")]
        reply = await send_fields(app, entry, RequestFields(task="t", config="c"), headers)
        assert reply.status == 503
        assert reply.header("retry-after") == "5"
        assert b"127.0.0.1" not in reply.body


async def test_when_the_key_set_is_back_callers_are_authenticated() -> None:
    async with KeySetServer(jwk("ES256")) as keys:
        keys.status = 500
        auth = JWTAuthenticator(jwks_url=keys.url, issuer=ISSUER, audience="my-agent")
        headers = [("authorization", f"Bearer {token('ES256', headers={'kid': 'key-1'})}")]
        async with agent(auth=auth) as app:
            assert (await call(app, "ListTasks", {}, headers=headers)).status == 503
            keys.status = 200
            async with asyncio.timeout(10):
                while (await call(app, "ListTasks", {}, headers=headers)).status != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def test_a_new_key_that_can_not_be_loaded_is_unavailable() -> None:
    """A token signed with a new key during an outage of the key set gets 503; with a known key, 200."""
    async with KeySetServer(jwk("ES256")) as keys:
        cache = JWKSCache(keys.url, cooldown_seconds=0)
        auth = JWTAuthenticator(jwks=cache, issuer=ISSUER, audience="my-agent")
        known, new = (
            [("authorization", f"Bearer {token('ES256', number=number, headers={'kid': f'key-{number}'})}")]
            for number in (1, 2)
        )
        async with agent(auth=auth) as app:
            assert (await call(app, "ListTasks", {}, headers=known)).status == 200
            keys.status = 500
            reply = await call(app, "ListTasks", {}, headers=new)
            assert (reply.status, reply.header("retry-after")) == (503, "5")
            assert reply.header("www-authenticate") is None
            assert (await call(app, "ListTasks", {}, headers=known)).status == 200
            keys.status = 200
            keys.publish(jwk("ES256"), jwk("ES256", 2))
            assert (await call(app, "ListTasks", {}, headers=new)).status == 200


class Broken:
    """An authenticator with a defect."""

    def authenticate(self, headers: dict[str, str]) -> Any:
        raise RuntimeError("SELECT secret FROM users")

    def security_schemes(self) -> list[dict[str, Any]]:
        return [{"type": "http", "scheme": "bearer"}]


class Odd(Broken):
    def authenticate(self, headers: dict[str, str]) -> Any:
        return 42


@pytest.mark.parametrize("auth", [Broken(), Odd()])
@pytest.mark.parametrize("required", [True, False])
async def test_a_defect_of_an_authenticator_refuses_every_caller(auth: Any, required: bool) -> None:
    async with agent(auth=auth, require_auth=required) as app:
        reply = await call(app, "ListTasks", {}, headers=bearer("alice"))
        rest = await ask(app, "GET", "/tasks", headers=bearer("alice"))
    assert "error" in reply.json
    assert rest.status == 500
    for body in (reply.body, rest.body):
        assert b"SELECT" not in body
        assert b"42" not in body


# ------------------------------------------------------------------------------------------ on behalf of the caller


async def test_the_worker_acts_for_the_caller() -> None:
    """The worker has the caller's identity in every turn, also after a sleep that freed its slot; none remains set."""
    waited = asyncio.Event()

    async def work(ctx: TaskContext) -> None:
        if ctx.user_text == "wait":
            await ctx.sleep(0.05)
            waited.set()
        if ctx.user_text == "ask":
            await ctx.request_input("What?")
            return
        await tell(ctx)

    async with agent(worker=work) as app:
        replies = await asyncio.gather(
            *(
                call(app, "SendMessage", message("wait" if number % 2 else "now"), headers=bearer(f"u{number}"))
                for number in range(20)
            )
        )
        assert [reply_text(reply) for reply in replies] == [f"acme/u{number} acme/u{number}" for number in range(20)]
        asked = (await call(app, "SendMessage", message("ask"), headers=bearer("alice"))).json["result"]["task"]
        answer = await call(app, "SendMessage", message("x", taskId=asked["id"]), headers=bearer("alice"))
        assert reply_text(answer) == "acme/alice acme/alice"
    assert waited.is_set()
    assert auth_identity_var.get() is None


async def test_roles_and_claims_reach_the_worker_and_no_response() -> None:
    seen: list[Principal] = []

    async def work(ctx: TaskContext) -> None:
        seen.append(ctx.principal)
        await ctx.complete("Done.")

    mapping = ClaimMapping(tenant_claim="tenant", attrs_claims=("email",))
    async with agent(worker=work, auth=authenticator(claim_mapping=mapping)) as app:
        headers = bearer("alice", email="alice@private.example", roles=["admin"])
        sent = await call(app, "SendMessage", message(), headers=headers)
        listed = await call(app, "ListTasks", {"includeArtifacts": True, "historyLength": 10}, headers=headers)
        task = await call(app, "GetTask", {"id": sent.json["result"]["task"]["id"]}, headers=headers)
    assert seen == [Principal("alice", "acme", frozenset({"admin"}), {"email": "alice@private.example"}, "user")]
    for reply in (sent, listed, task):
        assert b"private.example" not in reply.body
        assert b"admin" not in reply.body


async def test_the_extended_card_is_built_for_the_caller() -> None:
    """The provider runs as the caller, and no caller gets the card of another."""
    async with agent() as app:
        for owner in ("alice", "bob", "alice"):
            for method in ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"):
                card = (await call(app, method, {}, headers=bearer(owner))).json["result"]
                assert card["name"] == f"The agent of {owner}"
                assert card["skills"][0]["name"] == f"for {owner}"
        public = await ask(app, "GET", "/.well-known/agent-card.json")
        assert b"alice" not in public.body
        assert auth_identity_var.get() is None


async def test_an_extended_card_that_fails_reveals_nothing() -> None:
    def broken(_caller: Caller) -> AgentCardConfig:
        raise RuntimeError("/etc/secret")

    async with agent(extended_card=broken) as app:
        reply = await call(app, "GetExtendedAgentCard", {}, headers=bearer("alice"))
        assert reply.json["error"]["code"] == -32603
        assert b"secret" not in reply.body


# ---------------------------------------------------------------------------------------------------------- tenants


@pytest.mark.parametrize("tenant", ["globex", "", "acme"])
async def test_a_caller_with_an_authenticated_tenant_has_no_other(tenant: str) -> None:
    async with agent() as app:
        params = {**message(), "tenant": tenant}
        reply = await call(app, "SendMessage", params, headers=bearer("alice"))
        assert ("result" in reply.json) == (tenant != "globex")


async def test_naming_a_tenant_gives_no_access_to_its_callers() -> None:
    """An issuer without tenants also has an alice; the tenant's name gives her no access to the other alice's tasks."""
    auth = AnyOf(
        authenticator(),  # with tenants
        TokenAuthenticator.of({"alice-of-nowhere": Principal("alice")}),
    )
    nowhere = [("authorization", "Bearer alice-of-nowhere")]
    async with agent(auth=auth) as app:
        known = (await call(app, "SendMessage", message(), headers=bearer("alice"))).json["result"]["task"]["id"]
        for tenant in ("acme", "", "acme/alice"):
            stolen = await call(app, "GetTask", {"id": known, "tenant": tenant}, headers=nowhere)
            assert stolen.json["error"]["code"] == -32001
            listed = await call(app, "ListTasks", {"tenant": tenant}, headers=nowhere)
            assert listed.json["result"]["totalSize"] == 0
        own = await call(app, "SendMessage", {**message(), "tenant": "acme"}, headers=nowhere)
        assert own.json["result"]["task"]["id"] != known
        for tenant, count in (("acme", 1), ("globex", 0), ("", 0)):  # the name separates her own tasks
            listed = await call(app, "ListTasks", {"tenant": tenant}, headers=nowhere)
            assert listed.json["result"]["totalSize"] == count


async def test_without_authentication_tenants_are_separate() -> None:
    async with agent(auth=None) as app:
        await call(app, "SendMessage", {**message(), "tenant": "acme"})
        counts = [
            (await call(app, "ListTasks", {"tenant": tenant})).json["result"]["totalSize"]
            for tenant in ("acme", "globex", "")
        ]
        assert counts == [1, 0, 0]


# -------------------------------------------------------------------------------------------------- auth_required


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_worker_requests_authentication_and_continues(version: str) -> None:
    """The task waits in auth-required; its owner sends a message, and the next turn ends the task."""

    async def work(ctx: TaskContext) -> None:
        if ctx.turn == 1:
            await ctx.request_auth("Sign in to the bank.", schemes=["oauth2"], auth_url="https://bank.example/auth")
        else:
            await ctx.complete(f"Signed in with {ctx.user_text} as {ctx.principal.owner}")

    async with agent(worker=work) as app:
        new = version == "1.0"
        if new:
            sent = await call(app, "SendMessage", message(), headers=bearer("alice"))
            task = sent.json["result"]["task"]
            assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        else:
            sent = await call(app, "message/send", _old("Hello"), headers=bearer("alice"))
            task = sent.json["result"]
            assert task["status"]["state"] == "auth-required"
        assert "Sign in to the bank." in sent.body.decode()
        assert "https://bank.example/auth" in sent.body.decode()
        stranger = await call(app, "SendMessage", message("mine", taskId=task["id"]), headers=bearer("mallory"))
        assert stranger.json["error"]["code"] == -32001
        if new:
            answer = await call(app, "SendMessage", message("a code", taskId=task["id"]), headers=bearer("alice"))
            assert answer.json["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        else:
            answer = await call(app, "message/send", _old("a code", taskId=task["id"]), headers=bearer("alice"))
            assert answer.json["result"]["status"]["state"] == "completed"
        assert b"Signed in with a code as alice" in answer.body


def _old(text: str, **more: Any) -> dict[str, Any]:
    return {
        "message": {
            "kind": "message",
            "messageId": new_id(),
            "role": "user",
            "parts": [{"kind": "text", "text": text}],
            **more,
        }
    }


async def test_a_stream_shows_that_authentication_is_required() -> None:
    async def work(ctx: TaskContext) -> None:
        await ctx.request_auth("Sign in.")

    async with agent(worker=work) as app:
        reply = await call(
            app,
            "SendStreamingMessage",
            message(),
            headers=bearer("alice"),
            enough=lambda body: b"AUTH_REQUIRED" in body,
        )
        assert "statusUpdate" in reply.events[-1]["result"]


# ---------------------------------------------------------------------------------------------------- rate limits


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if not entry.tenant], ids=str)
async def test_a_caller_over_its_rate_waits_and_others_do_not(entry: Entry) -> None:
    """Every binding responds with 429 and Retry-After, per principal; a new token or a tenant's name does not help."""
    settings = ServerSettings(requests_per_second=0.01, request_burst=2)
    fields = RequestFields(task="t", config="c")
    async with agent(settings=settings) as app:
        statuses = [
            (await send_fields(app, entry, fields, bearer("alice", expires_in=600 + n))).status for n in range(3)
        ]
        assert statuses[-1] == 429
        assert 429 not in statuses[:2]
        refused = await send_fields(app, entry, fields, bearer("alice"))
        assert int(refused.header("retry-after") or 0) >= 1
        assert (await send_fields(app, entry, fields, bearer("bob"))).status != 429
        assert (await send_fields(app, entry, fields, bearer("alice", "globex"))).status != 429
        assert (await ask(app, "GET", "/health")).status == 200


def test_the_bucket_refills() -> None:
    now = [0.0]
    rates = RequestLimiter(2.0, 3, clock=lambda: now[0])
    alice = Principal("alice")
    allowed = 0
    for _ in range(100):
        now[0] += 0.1
        with contextlib.suppress(RateLimitedError):
            rates.check(alice)
            allowed += 1
    assert 20 <= allowed <= 24
