"""Any of several authenticators."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.auth import AnyOf, APIKeyAuthenticator, Authenticator, JWTAuthenticator, Principal, TokenAuthenticator
from keelbolt.auth.authenticator import Resolver
from keelbolt.errors import AuthMisconfigured, AuthUnavailable, CredentialsMissing, CredentialsRefused
from tests.unit.auth.issuer import AUDIENCE, ISSUER, SECRET, bearer, public_pem, token

KEY, STATIC = "k" * 20, "t" * 20
KEYS = APIKeyAuthenticator.of({KEY: "by-key"})
TOKENS = TokenAuthenticator.of({STATIC: "by-token"})
JWTS = JWTAuthenticator(SECRET, audience=AUDIENCE, issuer=ISSUER)


class Unavailable:
    closed = False

    def authenticate(self, headers: dict[str, str]) -> None:
        raise AuthUnavailable

    def security_schemes(self) -> list[dict[str, Any]]:
        return [{"type": "http", "scheme": "bearer"}]

    async def aclose(self) -> None:
        self.closed = True


async def test_whoever_recognises_the_caller_lets_it_in() -> None:
    both = AnyOf(KEYS, TOKENS, JWTS)
    assert isinstance(both, Authenticator)
    assert await both.authenticate({"x-api-key": KEY}) == Principal("by-key")
    assert await both.authenticate(bearer(STATIC)) == Principal("by-token")
    assert await both.authenticate(bearer(token())) == Principal("alice", type="user")
    assert await both.authenticate({}) is None


async def test_credentials_that_nobody_accepts_are_refused_with_the_best_reason() -> None:
    for order in ((TOKENS, JWTS), (JWTS, TOKENS)):
        with pytest.raises(CredentialsRefused) as caught:
            await AnyOf(*order).authenticate(bearer(token(exp=1)))
        assert caught.value.reason == "expired"
    with pytest.raises(CredentialsRefused) as caught:
        await AnyOf(KEYS, TOKENS).authenticate({"x-api-key": "wrong"})
    assert caught.value.reason == "unknown"


async def test_two_issuers_keep_their_keys_and_algorithms_apart() -> None:
    other = "https://other.example"
    both = AnyOf(
        JWTAuthenticator(SECRET, issuer=ISSUER, audience=AUDIENCE, tenant="one"),
        JWTAuthenticator(public_pem("RS256"), issuer=other, audience=AUDIENCE, tenant="two"),
    )
    assert await both.authenticate(bearer(token())) == Principal("alice", "one", type="user")
    assert await both.authenticate(bearer(token("RS256", iss=other))) == Principal("alice", "two", type="user")
    for crossed in (token(iss=other), token("RS256")):
        with pytest.raises(CredentialsRefused):
            await both.authenticate(bearer(crossed))


async def test_one_that_can_not_be_asked_leaves_it_open() -> None:
    away = Unavailable()
    both = AnyOf(away, KEYS, TOKENS)
    assert await both.authenticate({"x-api-key": KEY}) == Principal("by-key")
    with pytest.raises(AuthUnavailable):
        await both.authenticate(bearer("unknown-token"))
    await both.aclose()
    assert away.closed


async def test_all_schemes_are_declared_once() -> None:
    both = AnyOf(KEYS, TOKENS, JWTS, APIKeyAuthenticator.of({KEY: "x"}, header="X-Other"))
    assert both.security_schemes() == {
        "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey2": {"type": "apiKey", "in": "header", "name": "X-Other"},
    }
    with pytest.raises(CredentialsMissing) as caught:
        await Resolver(both).principal({})
    assert "Bearer" in caught.value.challenge
    assert 'name="X-Other"' in caught.value.challenge


def test_nothing_to_ask_is_a_mistake() -> None:
    with pytest.raises(AuthMisconfigured):
        AnyOf()
