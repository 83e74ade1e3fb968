"""API keys in their own header."""

from __future__ import annotations

import pytest

from keelbolt.auth import APIKeyAuthenticator, Authenticator, Principal, new_secret, sha256_hex
from keelbolt.errors import AuthMisconfigured, CredentialsRefused

KEY, OTHER = new_secret(), new_secret()
ALICE = Principal("alice", "acme", frozenset({"operator"}))


def test_a_key_identifies_its_principal() -> None:
    authenticator = APIKeyAuthenticator({sha256_hex(KEY): ALICE, sha256_hex(OTHER): ALICE})
    assert isinstance(authenticator, Authenticator)
    assert authenticator.authenticate({"x-api-key": KEY}) == ALICE
    assert authenticator.authenticate({"x-api-key": f" {OTHER} "}) == ALICE
    assert authenticator.authenticate({}) is None
    assert authenticator.authenticate({"authorization": f"Bearer {KEY}"}) is None


@pytest.mark.parametrize(
    "key",
    ["", "wrong", KEY[:-1], KEY.lower(), sha256_hex(KEY), "x" * 1_000_000],
    ids=["none", "wrong", "shorter", "in lower case", "its digest", "long"],
)
def test_another_key_is_refused(key: str) -> None:
    with pytest.raises(CredentialsRefused) as caught:
        APIKeyAuthenticator.of({KEY: "alice"}).authenticate({"x-api-key": key})
    assert caught.value.reason == "unknown"
    assert not key or key not in str(caught.value)


def test_the_header_can_be_chosen() -> None:
    authenticator = APIKeyAuthenticator.of({KEY: "alice"}, header="X-Agent-Token")
    assert authenticator.authenticate({"x-agent-token": KEY}) == Principal("alice")
    assert authenticator.authenticate({"x-api-key": KEY}) is None
    assert authenticator.security_schemes() == [{"type": "apiKey", "in": "header", "name": "X-Agent-Token"}]


@pytest.mark.parametrize("header", ["", "X Key", "X-Key:", "Authorization", "cookie", "X-Key\r\nX"])
def test_invalid_headers_are_refused(header: str) -> None:
    with pytest.raises(AuthMisconfigured):
        APIKeyAuthenticator.of({KEY: "alice"}, header=header)


def test_the_key_itself_is_not_stored() -> None:
    authenticator = APIKeyAuthenticator.of({KEY: "alice"})
    assert KEY not in repr(vars(authenticator)) + repr(vars(authenticator._digests))
