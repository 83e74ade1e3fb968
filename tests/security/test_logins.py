"""Attacks: guess credentials at full speed; exhaust the rate limit that anonymous callers share."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from keelbolt.auth import APIKeyAuthenticator, Authenticator, TokenAuthenticator
from keelbolt.errors import RateLimitedError
from keelbolt.protocol.card import AgentCardConfig
from keelbolt.server import A2AServer
from keelbolt.server.gate import MAX_BUCKETS, PROXY_SHARE, LoginLimiter, RequestOrigin, client_of, network_of
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from tests.integration.grpc.speaking import PB, refused, talking
from tests.integration.server.asgi import Headers, Reply, ask
from tests.integration.server.people import authenticator, bearer

KEY = "a-key-of-the-tests-here"
EACH = 5


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(ctx.user_text)


@contextlib.asynccontextmanager
async def agent(auth: Authenticator | None = None, **settings: Any) -> AsyncIterator[ASGIApp]:
    given = ServerSettings.of({}, **{"failed_logins": EACH, **settings})
    card = AgentCardConfig(name="A", description="…")
    async with A2AServer(worker=echo, agent_card=card, auth=auth, settings=given) as server:
        yield server.app


def at(app: ASGIApp, address: str) -> ASGIApp:
    """Return the application for a client with this address."""

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "client": (address, 1234)}, receive, send)

    return asked


async def tasks(app: ASGIApp, *headers: tuple[str, str], address: str = "192.0.2.1") -> Reply:
    return await ask(at(app, address), "GET", "/tasks", headers=headers)


async def guess(app: ASGIApp, count: int, *more: tuple[str, str], address: str = "192.0.2.1") -> list[int]:
    """Return the statuses of this many wrong keys."""
    return [(await tasks(app, ("x-api-key", f"wrong-{n}"), *more, address=address)).status for n in range(count)]


KEYS = APIKeyAuthenticator.of({KEY: "alice"})
RIGHT = ("x-api-key", KEY)


async def test_guessing_is_throttled_by_address() -> None:
    async with agent(KEYS) as app:
        assert (await tasks(app, RIGHT)).status == 200
        assert await guess(app, 3 * EACH) == [401] * EACH + [429] * 2 * EACH
        blocked = await tasks(app, RIGHT)
        assert (blocked.status, int(blocked.header("retry-after") or 0) > 0) == (429, True), "a guess might be right"
        assert (await tasks(app, RIGHT, address="192.0.2.2")).status == 200, "others are not affected"


async def test_every_binding_is_throttled() -> None:
    async with agent(KEYS) as app:
        await guess(app, EACH)
        ways = (("POST", "/"), ("POST", "/message:send"), ("GET", "/keelbolt/v1/whoami"), ("GET", "/v1/tasks"))
        for method, path in ways:
            headers = [("x-api-key", "wrong"), ("content-type", "application/json")]
            reply = await ask(at(app, "192.0.2.1"), method, path, headers=headers, body=b"{}")
            assert reply.status == 429, path
        for path in ("/.well-known/agent-card.json", "/health"):
            assert (await ask(at(app, "192.0.2.1"), "GET", path)).status == 200


async def test_grpc_is_throttled_too() -> None:
    auth = TokenAuthenticator.of({KEY: "alice"})
    async with talking(auth=auth, settings=ServerSettings.of({}, failed_logins=EACH)) as talk:
        codes = []
        for n in range(2 * EACH):
            metadata = [("authorization", f"Bearer wrong-{n}")]
            codes.append((await refused(talk.stub.ListTasks(PB.ListTasksRequest(), metadata=metadata))).code)
        assert codes[:EACH] == ["UNAUTHENTICATED"] * EACH
        assert codes[EACH:] == ["RESOURCE_EXHAUSTED"] * EACH


async def test_missing_and_expired_credentials_are_not_guesses() -> None:
    async with agent(authenticator()) as app:
        for _ in range(3 * EACH):
            assert (await tasks(app)).status == 401
            assert (await tasks(app, *bearer("alice", expires_in=-3600))).status == 401
        assert (await tasks(app, *bearer("alice"))).status == 200


async def test_a_client_of_a_proxy_does_not_lock_out_the_others() -> None:
    """The proxy appends its client's address; text that the client sent precedes it."""
    async with agent(KEYS) as app:
        evil = ("x-forwarded-for", "198.51.100.7, 203.0.113.66")
        assert (await guess(app, 2 * EACH, evil, address="127.0.0.1"))[-1] == 429
        good = ("x-forwarded-for", "198.51.100.7")
        assert (await tasks(app, RIGHT, good, address="127.0.0.1")).status == 200


async def test_a_forged_header_does_not_help_for_long() -> None:
    async with agent(KEYS) as app:
        statuses = []
        for n in range(EACH * PROXY_SHARE + 20):
            forged = ("x-forwarded-for", f"10.0.{n // 250}.{n % 250}")
            statuses += await guess(app, 1, forged)
        assert set(statuses[: EACH * PROXY_SHARE - 20]) == {401}
        assert statuses[-1] == 429


@pytest.mark.parametrize("auth", [KEYS, authenticator(), TokenAuthenticator.of({KEY: "alice"})])
async def test_failures_are_logged_without_the_credentials(
    auth: Authenticator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with agent(auth) as app:
        await tasks(app, ("x-api-key", "wrong-and-secret"))
        await tasks(app, ("authorization", "Bearer wrong-and-secret"))
    lines = [record for record in caplog.records if "login failed" in record.getMessage()]
    assert lines
    assert {record.levelno for record in lines} == {logging.INFO}
    assert "192.0.2.1" in lines[0].getMessage()
    assert "wrong-and-secret" not in caplog.text


def test_memory_is_bounded() -> None:
    logins = LoginLimiter(EACH, clock=lambda: 0.0)
    for n in range(2 * MAX_BUCKETS):
        address = f"10.{n >> 16}.{(n >> 8) & 255}.{n & 255}"
        logins.failed(RequestOrigin(address, address))
    assert len(logins._clients._kept) <= MAX_BUCKETS
    assert len(logins._addresses._kept) <= MAX_BUCKETS


def test_the_throttle_ends() -> None:
    now = [0.0]
    logins, client = LoginLimiter(EACH, clock=lambda: now[0]), RequestOrigin("192.0.2.1", "192.0.2.1")
    for _ in range(EACH):
        logins.check(client)
        logins.failed(client)
    with pytest.raises(RateLimitedError) as raised:
        logins.check(client)
    now[0] += raised.value.retry_after
    logins.check(client)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same


def test_text_that_is_not_an_address_has_no_bucket() -> None:
    """A bucket for any text would let a client fill the memory or a log."""
    scope = {"type": "http", "client": ("192.0.2.1", 1), "headers": [(b"x-forwarded-for", b"\x1b[2J" + b"x" * 5000)]}
    assert client_of(scope) == RequestOrigin("192.0.2.1", "192.0.2.1")


async def test_each_anonymous_address_has_its_own_bucket() -> None:
    async with agent(requests_per_second=0.001, request_burst=3) as app:
        statuses = [(await tasks(app)).status for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        assert (await tasks(app, address="192.0.2.2")).status == 200
        forged: Headers = [("x-forwarded-for", "198.51.100.1")]
        assert (await tasks(app, *forged)).status == 429, "a header makes no new bucket"


async def test_a_trusted_proxy_names_the_client() -> None:
    async with agent(requests_per_second=0.001, request_burst=1, trust_proxy=True) as app:
        for address, status in (("198.51.100.1", 200), ("198.51.100.2", 200), ("198.51.100.1", 429)):
            forged = ("x-forwarded-for", f"203.0.113.{status % 250}, {address}")
            assert (await tasks(app, forged)).status == status


async def test_authenticated_callers_are_limited_by_name() -> None:
    both = APIKeyAuthenticator.of({KEY: "alice", f"{KEY}-of-bob": "bob"})
    async with agent(both, requests_per_second=0.001, request_burst=1) as app:
        assert (await tasks(app, RIGHT)).status == 200
        assert (await tasks(app, ("x-api-key", f"{KEY}-of-bob"))).status == 200
        assert (await tasks(app, RIGHT, address="192.0.2.2")).status == 429
