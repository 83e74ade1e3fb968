"""Key sets by URL: rotation, outages, and attacks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from keelbolt.auth import AnyOf, JWTAuthenticator, Principal
from keelbolt.auth.jwks import MAX_KEYS, RETRY_SECONDS, JWKSCache, check_url
from keelbolt.errors import AuthMisconfigured, AuthUnavailable, CredentialsRefused
from tests.unit.auth.issuer import (
    AUDIENCE,
    ISSUER,
    SECRET,
    KeySetServer,
    Ticks,
    b64,
    bearer,
    claims,
    handmade,
    jwk,
    token,
)

ALICE = Principal("alice", type="user")


@asynccontextmanager
async def authenticating(server: KeySetServer, ticks: Ticks, **options: Any) -> AsyncIterator[JWTAuthenticator]:
    cache = JWKSCache(server.url, monotonic=ticks, **options)
    authenticator = JWTAuthenticator(jwks=cache, audience=AUDIENCE, issuer=ISSUER)
    try:
        yield authenticator
    finally:
        await authenticator.aclose()


def signed(number: int, **changed: Any) -> dict[str, str]:
    return bearer(token("ES256", number=number, headers={"kid": f"key-{number}"}, **changed))


async def refused(authenticator: JWTAuthenticator, headers: dict[str, str]) -> str:
    with pytest.raises(CredentialsRefused) as caught:
        await authenticator.authenticate(headers)
    return caught.value.reason


async def test_keys_are_loaded_once() -> None:
    async with KeySetServer(jwk("ES256"), jwk("EdDSA", 2)) as server, authenticating(server, Ticks()) as authenticator:
        for _ in range(3):
            assert await authenticator.authenticate(signed(1)) == ALICE
        assert await authenticator.authenticate(bearer(token("EdDSA", number=2, headers={"kid": "key-2"}))) == ALICE
        assert server.requests == 1


async def test_by_url_alone() -> None:
    async with KeySetServer(jwk("ES256")) as server:
        authenticator = JWTAuthenticator(jwks_url=server.url, issuer=ISSUER, audience=AUDIENCE)
        assert await authenticator.authenticate(signed(1)) == ALICE
        await authenticator.aclose()


async def test_a_new_key_is_loaded_when_a_token_names_it() -> None:
    ticks = Ticks()
    async with KeySetServer(jwk("ES256")) as server, authenticating(server, ticks) as authenticator:
        assert await authenticator.authenticate(signed(1)) == ALICE
        server.publish(jwk("ES256", 2))
        ticks.now += 31
        assert await authenticator.authenticate(signed(2)) == ALICE
        assert await refused(authenticator, signed(1)) == "key"  # a withdrawn key is no longer accepted
        assert server.requests == 2


async def test_unknown_key_names_cause_one_request_in_thirty_seconds() -> None:
    ticks = Ticks()
    async with KeySetServer(jwk("ES256")) as server, authenticating(server, ticks) as authenticator:
        for second in range(91):
            ticks.now = 1000.0 + second
            assert await refused(authenticator, signed(2)) == "key"
        assert server.requests == 4
        assert await authenticator.authenticate(signed(1)) == ALICE


async def test_old_keys_are_refreshed_in_the_background() -> None:
    ticks = Ticks()
    async with KeySetServer(jwk("ES256")) as server, authenticating(server, ticks) as authenticator:
        assert await authenticator.authenticate(signed(1)) == ALICE
        server.publish(jwk("ES256"), jwk("ES256", 2))
        server.delay_seconds = 0.2
        ticks.now += 301
        started = time.perf_counter()
        assert await authenticator.authenticate(signed(1)) == ALICE
        assert time.perf_counter() - started < 0.15  # no caller waited
        assert await authenticator.authenticate(signed(2)) == ALICE  # waits for the request in progress
        assert server.requests == 2


@pytest.mark.parametrize("trouble", ["down", "slow", "drip", "error", "nonsense", "empty", "huge", "secrets", "many"])
async def test_during_an_outage_the_old_keys_are_used(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    ticks = Ticks()
    async with (
        KeySetServer(jwk("ES256")) as server,
        authenticating(server, ticks, timeout_seconds=1.0) as authenticator,
    ):
        assert await authenticator.authenticate(signed(1)) == ALICE
        match trouble:
            case "down":
                await server.stop()
            case "slow":
                server.delay_seconds = 60
            case "drip":
                server.drip_seconds = 0.05  # each byte arrives in time, the whole response never
            case "error":
                server.status = 500
            case "nonsense":
                server.body = b"<html>" + b"[" * 50_000
            case "empty":
                server.publish()
            case "huge":
                server.publish(jwk("ES256", 2))
                server.body += b" " * 2_000_000
            case "secrets":
                server.publish({"kty": "oct", "k": b64(SECRET), "kid": "key-2"})
            case _:
                server.publish(*(jwk("ES256", kid=f"key-{number}") for number in range(MAX_KEYS + 1)))
        ticks.now += 3600
        started = time.perf_counter()
        with caplog.at_level(logging.WARNING, "keelbolt.auth"), pytest.raises(AuthUnavailable):
            await authenticator.authenticate(signed(2))  # it may be valid: its client must not drop it
        assert time.perf_counter() - started < 2
        assert "keys loaded before stay in use" in caplog.text
        assert await authenticator.authenticate(signed(1)) == ALICE
        with pytest.raises(AuthUnavailable):  # also without another request, in the cooldown
            await authenticator.authenticate(signed(2))

        ticks.now += 86_400
        with pytest.raises(AuthUnavailable):  # an outage does not extend keys forever
            await authenticator.authenticate(signed(1))


async def test_after_an_outage_an_unknown_key_is_refused_again() -> None:
    ticks = Ticks()
    async with KeySetServer(jwk("ES256")) as server, authenticating(server, ticks) as authenticator:
        assert await authenticator.authenticate(signed(1)) == ALICE
        server.status = 500
        ticks.now += 31
        with pytest.raises(AuthUnavailable):
            await authenticator.authenticate(signed(2))
        server.status = 200
        ticks.now += 31
        assert await refused(authenticator, signed(2)) == "key"


async def test_tokens_of_another_issuer_do_not_depend_on_this_key_set() -> None:
    """They cause no request to it, and in its outage an expired one is still reported as expired."""
    ticks, other = Ticks(), "https://other.example"
    async with KeySetServer(jwk("ES256")) as server, authenticating(server, ticks) as authenticator:
        both = AnyOf(authenticator, JWTAuthenticator(jwk("ES256", 2), issuer=other, audience=AUDIENCE))
        server.status = 500
        assert await both.authenticate(signed(2, iss=other)) == ALICE
        with pytest.raises(CredentialsRefused) as caught:
            await both.authenticate(signed(2, iss=other, exp=1))
        assert caught.value.reason == "expired"
        assert server.requests == 0


async def test_a_redirect_is_not_followed() -> None:
    async with KeySetServer() as moved, KeySetServer(jwk("ES256")) as elsewhere:
        moved.status, moved.headers = 302, [f"location: {elsewhere.url}"]
        async with authenticating(moved, Ticks()) as authenticator:
            with pytest.raises(AuthUnavailable):
                await authenticator.authenticate(signed(1))
        assert elsewhere.requests == 0


async def test_without_any_keys_authentication_is_unavailable() -> None:
    ticks = Ticks()
    async with KeySetServer(jwk("ES256")) as server, authenticating(server, ticks) as authenticator:
        server.status = 503
        for _ in range(5):
            with pytest.raises(AuthUnavailable) as caught:
                await authenticator.authenticate(signed(1))
            assert caught.value.retryable
        assert server.requests == 1
        server.status = 200
        ticks.now += RETRY_SECONDS
        assert await authenticator.authenticate(signed(1)) == ALICE


async def test_expired_keys_are_replaced_soon_after_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    ticks = Ticks()
    async with KeySetServer(jwk("ES256")) as server, authenticating(server, ticks) as authenticator:
        assert await authenticator.authenticate(signed(1)) == ALICE
        server.status = 503
        ticks.now += 86_400
        with caplog.at_level(logging.WARNING, "keelbolt.auth"), pytest.raises(AuthUnavailable):
            await authenticator.authenticate(signed(1))
        assert "stay in use" not in caplog.text
        server.status = 200
        ticks.now += RETRY_SECONDS
        assert await authenticator.authenticate(signed(1)) == ALICE


async def test_all_callers_wait_for_one_request() -> None:
    async with KeySetServer(jwk("ES256")) as server, authenticating(server, Ticks()) as authenticator:
        server.delay_seconds = 0.1
        waiting = [asyncio.create_task(authenticator.authenticate(signed(1))) for _ in range(50)]
        await asyncio.sleep(0.03)
        waiting[0].cancel()  # a caller that leaves does not cancel the shared request
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert answers[1:] == [ALICE] * 49
        assert server.requests == 1


async def test_a_slow_endpoint_blocks_no_longer_than_the_timeout() -> None:
    async with (
        KeySetServer(jwk("ES256")) as server,
        authenticating(server, Ticks(), timeout_seconds=0.2) as authenticator,
    ):
        server.delay_seconds = 60
        started = time.perf_counter()
        with pytest.raises(AuthUnavailable):
            await authenticator.authenticate(signed(1))
        assert time.perf_counter() - started < 2


async def test_close_ends_a_request_in_progress() -> None:
    async with KeySetServer(jwk("ES256")) as server, authenticating(server, Ticks()) as authenticator:
        server.delay_seconds = 60
        waiting = asyncio.create_task(authenticator.authenticate(signed(1)))
        await asyncio.sleep(0.05)
        await authenticator.aclose()
        with pytest.raises(AuthUnavailable):
            await waiting


async def test_a_client_can_be_passed_in_and_stays_open() -> None:
    async with KeySetServer(jwk("ES256")) as server, httpx2.AsyncClient() as client:
        async with authenticating(server, Ticks(), client=client) as authenticator:
            assert await authenticator.authenticate(signed(1)) == ALICE
        assert not client.is_closed


def test_one_cache_serves_one_event_loop_after_another() -> None:
    async def load(cache: JWKSCache, server: KeySetServer) -> int:
        return len(await cache.find("ES256", "key-1"))

    async def once() -> tuple[JWKSCache, int]:
        async with KeySetServer(jwk("ES256")) as server:
            cache = JWKSCache(server.url, monotonic=Ticks())
            return cache, await load(cache, server)

    cache, found = asyncio.run(once())
    assert found == 1
    assert len(asyncio.run(cache.find("ES256", "key-1"))) == 1


async def test_a_published_secret_is_not_used() -> None:
    """A secret that is in a key set by mistake can't be used to forge HS256 tokens."""
    secret = {"kty": "oct", "k": b64(SECRET), "kid": "s"}
    async with KeySetServer(jwk("ES256"), secret) as server, authenticating(server, Ticks()) as authenticator:
        forged = handmade({"alg": "HS256", "kid": "s"}, claims())
        assert await refused(authenticator, bearer(forged)) == "algorithm"
        assert server.requests == 0


@pytest.mark.parametrize(
    "url", ["https://issuer.example/jwks", "http://127.0.0.1:8/jwks", "http://[::1]/jwks", "http://localhost:1/"]
)
def test_tls_or_loopback(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/jwks",
        "http://127.0.0.1.evil.example/",
        "http://localhost.evil.example/",
        "http://169.254.169.254/",
        "http://10.0.0.1/",
        "file:///etc/passwd",
        "ftp://issuer.example/",
        "https:///jwks",
        "https://[::1/jwks",
        "jwks",
        "",
        "https://user:password@issuer.example/",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(AuthMisconfigured):
        check_url(url)
