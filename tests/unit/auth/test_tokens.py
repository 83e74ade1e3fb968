"""Strict parsing of tokens: one encoding each, and no header that selects or changes the verification."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.auth.jwt import json_object, take_apart
from keelbolt.errors import CredentialsRefused
from tests.unit.auth.issuer import b64, claims, handmade, token

HEADER: dict[str, Any] = {"alg": "HS256", "typ": "JWT"}


def refused(text: str) -> str:
    with pytest.raises(CredentialsRefused) as caught:
        take_apart(text)
    return caught.value.reason


def test_a_token_has_its_parts() -> None:
    text = token(headers={"kid": "k1"})
    parts = take_apart(text)
    assert (parts.algorithm, parts.kid) == ("HS256", "k1")
    assert parts.signed.decode() == text.rpartition(".")[0]
    assert json.loads(parts.payload)["sub"] == "alice"
    assert text.split(".")[1] not in repr(parts)


@pytest.mark.parametrize("name", ["jku", "jwk", "x5u", "x5c", "crit", "b64", "zip", "cty", "enc"])
def test_headers_that_bring_a_key_or_change_the_payload_are_refused(name: str) -> None:
    assert refused(handmade({**HEADER, name: "https://evil.example/keys"}, claims())) == "header"


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt", "application/at+jwt", None])
def test_access_tokens_are_accepted(kind: str | None) -> None:
    header = {"alg": "HS256"} if kind is None else {"alg": "HS256", "typ": kind}
    assert take_apart(handmade(header, claims())).algorithm == "HS256"


@pytest.mark.parametrize("kind", ["dpop+jwt", "logout+jwt", "secevent+jwt", "JOSE", ""])
def test_tokens_of_another_type_are_refused(kind: str) -> None:
    assert refused(handmade({**HEADER, "typ": kind}, claims())) == "type"


@pytest.mark.parametrize(
    "header",
    ['{"alg":"none","alg":"HS256"}', '{"alg":"HS256","x":{"a":1,"a":2}}'],
)
def test_a_header_with_a_duplicate_name_is_refused(header: str) -> None:
    assert refused(handmade(header, claims())) == "duplicate"


@pytest.mark.parametrize(
    "header", [{}, {"alg": None}, {"alg": ["HS256"]}, {"alg": "HS256", "kid": 5}, {"alg": "HS256", "typ": 5}]
)
def test_a_header_of_wrong_types_is_refused(header: dict[str, Any]) -> None:
    assert refused(handmade(header, claims())) == "header"


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"null", b'"x"', b"{", b"\xff", b'{"a":NaN}', b'{"a":-Infinity}', b"[" * 15_000, b'{"a":' * 9000],
)
def test_payloads_that_are_not_a_json_object_are_refused(raw: bytes) -> None:
    with pytest.raises(CredentialsRefused) as caught:
        json_object(raw)
    assert caught.value.reason == "malformed"


def test_a_token_has_only_one_encoding() -> None:
    head, body, signature = token().split(".")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = signature[:-1] + letters[letters.index(signature[-1]) ^ 1]  # differs in unused bits
    for changed in (f"{head}.{body}.{other}", f"{head}=.{body}.{signature}", f"{head}.{body}.{signature}\n"):
        assert refused(changed) == "malformed"


@pytest.mark.parametrize("text", ["", ".", "..", "a.b", "a.b.c.d", "a.b.c.d.e", f"{b64('{}')}..", "é.é.é"])
def test_malformed_tokens_are_refused(text: str) -> None:
    refused(text)


@given(st.text(max_size=80) | st.lists(st.binary(max_size=40).map(b64), min_size=3, max_size=3).map(".".join))
def test_no_other_exception_is_raised(text: str) -> None:
    with suppress(CredentialsRefused):
        take_apart(text)
