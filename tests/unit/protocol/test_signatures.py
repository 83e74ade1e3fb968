"""Signatures of agent cards: only the signed content is verified."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from keelbolt.errors import CardSignatureError
from keelbolt.protocol.card import AgentCardConfig, Interface, SkillConfig, build_card
from keelbolt.protocol.signatures import Algorithm, CardKey, verify_card

KEYS: dict[Algorithm, Any] = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "RS256": rsa.generate_private_key(65537, 2048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def card() -> dict[str, Any]:
    skill = SkillConfig(id="s", name="S", description="Does it", tags=["a"])
    config = AgentCardConfig(name="Agent", description="Says it again", skills=[skill])
    return build_card(config, [Interface("http://localhost/", "JSONRPC")])


def pem(key: Any) -> bytes:
    data: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return data


@pytest.mark.parametrize("algorithm", list(KEYS))
def test_a_signed_card_is_verified_by_the_public_half(algorithm: Algorithm) -> None:
    key = CardKey.from_pem(pem(KEYS[algorithm]), "k", algorithm=algorithm)
    signed = card()
    signed["signatures"] = [key.sign(signed)]
    assert verify_card(json.loads(json.dumps(signed)), key.jwks()) == "k"
    assert "d" not in key.jwks()["keys"][0]  # nothing of the private half is included


@pytest.mark.parametrize("member", ["name", "description", "skills", "supportedInterfaces", "version"])
def test_a_changed_card_is_not_verified(member: str) -> None:
    key = CardKey.generate("k")
    signed = card()
    signed["signatures"] = [key.sign(signed)]
    signed[member] = [] if isinstance(signed[member], list) else "changed"
    with pytest.raises(CardSignatureError):
        verify_card(signed, key.jwks())


def test_a_key_is_never_used_with_another_algorithm() -> None:
    key = CardKey.from_pem(pem(KEYS["RS256"]), "k", algorithm="RS256")
    signed = card()
    signature = key.sign(signed)
    header = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "k"}).encode()).rstrip(b"=").decode()
    signed["signatures"] = [{"protected": header, "signature": ""}, {**signature, "protected": header}]
    with pytest.raises(CardSignatureError):
        verify_card(signed, key.jwks())


def test_a_signature_of_another_key_is_refused() -> None:
    key, stranger = CardKey.generate("k"), CardKey.generate("k")
    signed = card()
    signed["signatures"] = [stranger.sign(signed)]
    with pytest.raises(CardSignatureError):
        verify_card(signed, key.jwks())


def test_one_good_signature_among_bad_ones_is_enough() -> None:
    key, stranger = CardKey.generate("k"), CardKey.generate("x")
    signed = card()
    signed["signatures"] = [stranger.sign(signed), {}, "no", key.sign(signed)]
    assert verify_card(signed, key.jwks()) == "k"


def test_a_card_without_signatures_is_refused() -> None:
    with pytest.raises(CardSignatureError, match="not signed"):
        verify_card(card(), CardKey.generate("k").jwks())


def test_an_invalid_key_is_reported() -> None:
    with pytest.raises(CardSignatureError, match="PEM"):
        CardKey.from_pem("nonsense", "k")
    with pytest.raises(CardSignatureError, match="RS256"):
        CardKey.from_pem(pem(KEYS["ES256"]), "k", algorithm="RS256").sign(card())
