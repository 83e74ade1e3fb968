"""Signatures of agent cards: JWS (RFC 7515) over canonical JSON (RFC 8785), made and verified.

    key = CardKey.generate("key-1")
    card["signatures"] = [key.sign(card)]
    verify_card(card, key.jwks())   # the key id that vouches for it; raises CardSignatureError

Needs the extra ``auth`` (cryptography, PyJWT).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from keelbolt.errors import CardSignatureError, MissingExtra
from keelbolt.protocol.canonical import canonical_json
from keelbolt.protocol.card_signing import signing_payload

Algorithm = Literal["ES256", "RS256", "EdDSA"]
ALGORITHMS: tuple[Algorithm, ...] = ("ES256", "RS256", "EdDSA")
MAX_SIGNATURES = 10


@dataclass(frozen=True, slots=True)
class CardKey:
    """A private key that signs cards. ``jwks_url`` is the URL of its public key, for verifiers."""

    key: Any
    kid: str
    algorithm: Algorithm = "ES256"
    jwks_url: str | None = None

    @classmethod
    def from_pem(
        cls, pem: str | bytes, kid: str, *, algorithm: Algorithm = "ES256", jwks_url: str | None = None
    ) -> CardKey:
        """Return a key from PEM (PKCS 8)."""
        _check_extra()
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

        try:
            key = load_pem_private_key(pem.encode() if isinstance(pem, str) else pem, None)
        except (ValueError, TypeError):
            raise CardSignatureError("the key is not a private key in PEM, without a password") from None
        return cls(key, kid, algorithm, jwks_url)

    @classmethod
    def generate(cls, kid: str, *, jwks_url: str | None = None) -> CardKey:
        """Return a new key, for tests and first steps."""
        _check_extra()
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

        return cls(ec.generate_private_key(ec.SECP256R1()), kid, "ES256", jwks_url)

    def sign(self, card: Mapping[str, Any]) -> dict[str, str]:
        """Return a signature of this card, for its ``signatures``."""
        header: dict[str, str] = {"alg": self.algorithm, "kid": self.kid, "typ": "JOSE"}
        if self.jwks_url is not None:
            header["jku"] = self.jwks_url
        protected = _b64(canonical_json(header))
        signing_input = protected + b"." + _b64(signing_payload(card))
        try:
            signature = _algorithm(self.algorithm).sign(signing_input, self.key)
        except (TypeError, ValueError, AttributeError):
            raise CardSignatureError(f"this key can't make {self.algorithm} signatures") from None
        return {"protected": protected.decode(), "signature": _b64(signature).decode()}

    def jwks(self) -> dict[str, Any]:
        """Return the public key as a JSON Web Key Set."""
        public = json.loads(_algorithm(self.algorithm).to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": self.kid, "alg": self.algorithm, "use": "sig"}]}


def verify_card(card: Mapping[str, Any], jwks: Mapping[str, Any]) -> str:
    """Return the id of the key that signed this card unchanged. Raise CardSignatureError."""
    _check_extra()
    signatures = card.get("signatures")
    if not isinstance(signatures, list) or not signatures:
        raise CardSignatureError("the card is not signed")
    keys = {key["kid"]: key for key in jwks.get("keys", ()) if isinstance(key, dict) and "kid" in key}
    payload = _b64(signing_payload(card))
    for signature in signatures[:MAX_SIGNATURES]:
        if (kid := _verified(signature, payload, keys)) is not None:
            return kid
    raise CardSignatureError


def _verified(signature: Any, payload: bytes, keys: Mapping[str, Any]) -> str | None:
    try:
        protected = signature["protected"]
        header = json.loads(_unb64(protected))
        algorithm, kid = header["alg"], header["kid"]
        key = keys[kid]
        # The algorithm in the header must match the key's: a key is never used with another algorithm.
        if algorithm not in ALGORITHMS or key.get("alg", algorithm) != algorithm or "crit" in header:
            return None
        checker = _algorithm(algorithm)
        good = checker.verify(
            protected.encode() + b"." + payload, checker.from_jwk(key), _unb64(signature["signature"])
        )
    except Exception:  # noqa: BLE001 - a malformed signature is an invalid one
        return None
    return kid if good else None


def _algorithm(name: str) -> Any:
    _check_extra()
    import jwt.algorithms  # noqa: PLC0415

    return jwt.algorithms.get_default_algorithms()[name]


def _check_extra() -> None:
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise MissingExtra("auth", "pyjwt[crypto]")


def _b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
