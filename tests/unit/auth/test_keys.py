"""Keys: every kind is understood, and none is good for another kind's algorithms."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from keelbolt.auth.keys import keys_of_set, load_keys
from keelbolt.errors import AuthMisconfigured
from tests.unit.auth.issuer import SECRET, b64, jwk, private_key, private_pem, public_pem

KINDS = {
    "RS256": {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"},
    "ES256": {"ES256"},
    "ES384": {"ES384"},
    "ES512": {"ES512"},
    "EdDSA": {"EdDSA"},
}


@pytest.mark.parametrize("algorithm", KINDS)
def test_a_public_key_knows_its_algorithms(algorithm: str) -> None:
    for source in (public_pem(algorithm), public_pem(algorithm).encode(), private_pem(algorithm), jwk(algorithm)):
        (key,) = load_keys(source)
        assert key.algorithms == KINDS[algorithm]
        assert not hasattr(key.material, "sign")  # of a private key only its public half is kept


def test_a_secret_is_good_for_hashes_up_to_its_length() -> None:
    assert load_keys("x" * 32)[0].algorithms == {"HS256"}
    assert load_keys(b"x" * 48)[0].algorithms == {"HS256", "HS384"}
    assert load_keys("x" * 64)[0].algorithms == {"HS256", "HS384", "HS512"}
    assert load_keys({"kty": "oct", "k": b64("x" * 32)})[0].algorithms == {"HS256"}


def test_a_certificate_is_its_public_key() -> None:
    key = private_key("ES256")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    day = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, day, day + dt.timedelta(days=1))
    pem = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    assert load_keys(pem)[0].algorithms == {"ES256"}


def test_several_keys_can_be_given() -> None:
    documents: list[Any] = [
        [public_pem("RS256"), SECRET],
        {"keys": [jwk("RS256"), jwk("ES256", 2)]},
        json.dumps({"keys": [jwk("RS256"), jwk("ES256", 2)]}),
    ]
    for document in documents:
        assert len(load_keys(document)) == 2


def test_a_jwk_may_narrow_its_algorithms_and_has_a_name() -> None:
    (key,) = load_keys(jwk("RS256", alg="PS256"))
    assert key.algorithms == {"PS256"}
    assert key.fits("PS256", "key-1")
    assert key.fits("PS256", None)
    assert not key.fits("PS256", "key-2")
    assert not key.fits("RS256", "key-1")


def der() -> bytes:
    raw: bytes = private_key("RS256").public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return raw


def ssh() -> bytes:
    raw: bytes = private_key("EdDSA").public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return raw


def pem_of(key: Any) -> bytes:
    raw: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return raw


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("secret", "at least 32"),
        ("", "empty"),
        (" \n", "empty"),
        ("/etc/keelbolt/the-public-key-of-our-issuer.pem", "names a file"),
        ("https://issuer.example/.well-known/jwks.json", "jwks_url"),
        (ssh(), "PEM"),
        (der(), "DER"),
        (pem_of(rsa.generate_private_key(public_exponent=65537, key_size=1024)), "1024 bits"),
        (pem_of(ec.generate_private_key(ec.SECP256K1())), "this kind of key"),
        (pem_of(dsa.generate_private_key(1024)), "this kind of key"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "no readable key"),
        ({"kty": "what"}, "must have a kty"),
        ({"keys": []}, "empty"),
        ({"kty": "RSA", "n": "AQAB"}, "damaged"),
        ({"kty": "oct", "k": b64("short")}, "at least 32"),
        (jwk("RS256", use="enc"), "not meant to verify"),
        (jwk("RS256", key_ops=["encrypt"]), "not meant to verify"),
        (jwk("RS256", alg="HS256"), "does not match"),
        (jwk("RS256", alg="none"), "does not match"),
        (jwk("RS256", kid=5), "damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else type(value).__name__,
)
def test_keys_that_can_not_be_trusted_are_refused_with_words(source: Any, words: str) -> None:
    with pytest.raises(AuthMisconfigured, match=words):
        load_keys(source)


def test_of_a_published_set_only_usable_public_keys_are_taken() -> None:
    secret = {"kty": "oct", "k": b64(SECRET), "kid": "s"}
    strange: list[Any] = [
        5,
        None,
        {},
        {"kty": "RSA"},
        jwk("RS256", use="enc"),
        jwk("ES256", alg=[]),
        {"kty": "EC", "x": 1},
    ]
    strange += [jwk("RS256", key_ops=5), {**jwk("EdDSA"), "d": "AAAA"}, {"kty": "OKP", "crv": "X25519", "x": "AA"}]
    found = keys_of_set({"keys": [secret, *strange, jwk("RS256"), jwk("EdDSA", 2)]})
    assert [key.kid for key in found] == ["key-1", "key-2"]
    for nonsense in ({}, {"keys": None}, {"keys": {"a": 1}}):
        assert keys_of_set(nonsense) == ()


def test_a_key_is_not_shown() -> None:
    assert SECRET not in repr(load_keys(SECRET))
