"""Configured secrets are stored as digests."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.auth.shared_secrets import SecretDigests, new_secret, sha256_hex
from keelbolt.errors import AuthMisconfigured


def test_a_secret_is_found_by_its_digest() -> None:
    one, two = new_secret(), new_secret()
    digests = SecretDigests({sha256_hex(one): Principal("alice", "acme"), sha256_hex(two): "bob"})
    assert digests.find(one) == Principal("alice", "acme")
    assert digests.find(two) == Principal("bob")
    for wrong in ("", one[:-1], one + "x", one.upper(), sha256_hex(one), "\ud800", "é"):
        assert digests.find(wrong) is None


def test_a_digest_is_plain_sha256() -> None:
    assert sha256_hex("key") == hashlib.sha256(b"key").hexdigest()


def test_new_secrets_are_long_and_different() -> None:
    assert len({new_secret() for _ in range(100)}) == 100
    assert len(new_secret()) > 40


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "at least one"),
        ({"the key itself": "alice"}, "sha256_hex"),
        ({sha256_hex("x").upper(): "alice"}, "sha256_hex"),
        ({sha256_hex("x"): ANONYMOUS}, "needs an owner"),
        ({sha256_hex("x"): ""}, "needs an owner"),
    ],
)
def test_wrong_tables_are_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(AuthMisconfigured, match=words):
        SecretDigests(table)


def test_short_secrets_are_refused() -> None:
    with pytest.raises(AuthMisconfigured, match="16 characters"):
        SecretDigests.table_of({"dev": "alice"})
