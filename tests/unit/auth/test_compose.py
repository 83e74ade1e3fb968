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


async def test_any_authenticator_can_accept_the_caller() -> None:
    both = AnyOf(KEYS, TOKENS, JWTS)
    assert isinstance(both, Authenticator)
    assert await both.authenticate({"x-api-key": KEY}) == Principal("by-key")
    assert await both.authenticate(bearer(STATIC)) == Principal("by-token")
    assert await both.authenticate(bearer(token())) == Principal("alice", type="user")
    assert await both.authenticate({}) is None


async def test_refused_credentials_get_the_most_specific_reason() -> None:
    another = JWTAuthenticator("another secret of thirty-two bytes", audience=AUDIENCE, issuer=ISSUER)
    others: list[Authenticator] = [TOKENS, another]  # a rejected signature says less than an expired token
    for other in others:
        for both in (AnyOf(other, JWTS), AnyOf(JWTS, other)):
            with pytest.raises(CredentialsRefused) as caught:
                await both.authenticate(bearer(token(exp=1)))
            assert caught.value.reason == "expired"
    with pytest.raises(CredentialsRefused) as caught:
        await AnyOf(KEYS, TOKENS).authenticate({"x-api-key": "wrong"})
    assert caught.value.reason == "unknown"


async def test_two_issuers_have_separate_keys_and_algorithms() -> None:
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


async def test_an_unavailable_authenticator_is_a_temporary_error() -> None:
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


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(AuthMisconfigured):
        AnyOf()
