"""Bearer tokens: read from one header, and configured in advance."""

from __future__ import annotations

import pytest

from keelbolt.auth import Authenticator, Principal, TokenAuthenticator, new_secret, sha256_hex
from keelbolt.auth.shared_secrets import bearer_token
from keelbolt.errors import CredentialsRefused

TOKEN = new_secret()


@pytest.mark.parametrize("header", ["Bearer abc", "bearer abc", "  BEARER   abc  "])
def test_a_token_is_read(header: str) -> None:
    assert bearer_token({"authorization": header}) == "abc"


@pytest.mark.parametrize("header", ["", "Basic abc", "Bearerabc", "abc"])
def test_other_headers_contain_no_token(header: str) -> None:
    assert bearer_token({"authorization": header}) is None
    assert bearer_token({}) is None


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer a b", "Bearer a,b", "Bearer é", "Bearer a\r\nb"])
def test_malformed_tokens_are_refused(header: str) -> None:
    with pytest.raises(CredentialsRefused) as caught:
        bearer_token({"authorization": header})
    assert caught.value.reason == "malformed"


def test_the_size_of_a_token_is_limited() -> None:
    assert bearer_token({"authorization": "Bearer " + "a" * 100}, max_bytes=100) == "a" * 100
    with pytest.raises(CredentialsRefused) as caught:
        bearer_token({"authorization": "Bearer " + "a" * 101}, max_bytes=100)
    assert caught.value.reason == "size"


def test_configured_tokens_identify_their_principals() -> None:
    authenticator = TokenAuthenticator({sha256_hex(TOKEN): Principal("alice", "acme")})
    assert isinstance(authenticator, Authenticator)
    assert authenticator.authenticate({"authorization": f"Bearer {TOKEN}"}) == Principal("alice", "acme")
    assert authenticator.authenticate({}) is None
    assert authenticator.security_schemes() == [{"type": "http", "scheme": "bearer"}]
    assert TokenAuthenticator.of({TOKEN: "bob"}).authenticate({"authorization": f"Bearer {TOKEN}"}) == Principal("bob")
    with pytest.raises(CredentialsRefused) as caught:
        authenticator.authenticate({"authorization": "Bearer wrong"})
    assert caught.value.reason == "unknown"
