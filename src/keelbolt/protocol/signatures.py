"""Signatures of agent cards: JWS (RFC 7515) over canonical JSON (RFC 8785), made and verified.

    key = CardKey.generate("key-1")
    card["signatures"] = [key.sign(card)]
    verify_card(card, key.jwks())   # the key id that vouches for it; raises CardSignatureError

Needs the extra ``auth`` (cryptography, PyJWT), except for canonical JSON: one text per value, so that every verifier
computes the same signature input. Members are sorted by their UTF-16 code units, strings are escaped as little as JSON
allows, and numbers are formatted as in ECMAScript. An integer that ECMAScript would change (2**53 + 1, say) raises
ValueError.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from keelbolt.errors import CardSignatureError, MissingExtra
from keelbolt.protocol.types import Json

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


# --------------------------------------------------------------------------------------------------------- card signing


Object = dict[str, Any]


def signing_payload(card: Mapping[str, Any]) -> bytes:
    """Return the canonical JSON of the 1.0 card without its signatures.

    Presence follows protobuf: an empty array, map or string and a false are omitted unless the field is required or
    optional, because they are the same as absent.
    """
    found = _pruned({name: value for name, value in project_v1(card).items() if name != "signatures"}, described=True)
    return canonical_json(found)


def project_v1(card: Mapping[str, Any]) -> Object:
    """Return the card with the members that a 1.0 reader knows."""
    return {name: _PROJECTIONS.get(name, _same)(card[name]) for name in _MEMBERS if name in card}


_MEMBERS = (
    "name",
    "description",
    "supportedInterfaces",
    "provider",
    "version",
    "documentationUrl",
    "capabilities",
    "securitySchemes",
    "securityRequirements",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
    "signatures",
    "iconUrl",
)
_SCHEMES = (
    "apiKeySecurityScheme",
    "httpAuthSecurityScheme",
    "oauth2SecurityScheme",
    "openIdConnectSecurityScheme",
    "mtlsSecurityScheme",
)


def _same(value: Json) -> Json:
    return value


def _without(name: str, value: Object) -> Object:
    return {key: item for key, item in value.items() if key != name}


def _schemes(schemes: Object) -> Object:
    return {name: {key: item for key, item in one.items() if key in _SCHEMES} for name, one in schemes.items()}


_PROJECTIONS: dict[str, Callable[[Any], Json]] = {
    "capabilities": lambda value: _without("stateTransitionHistory", value),
    "skills": lambda value: [_without("security", skill) for skill in value],
    "securitySchemes": _schemes,
}

_KEPT = frozenset(
    {
        *("name", "supportedInterfaces", "version", "capabilities", "skills", "defaultInputModes"),
        *("defaultOutputModes", "url", "protocolBinding", "protocolVersion", "organization", "id", "tags"),
        *("location", "scheme", "flows", "openIdConnectUrl", "authorizationUrl", "tokenUrl"),
        *("deviceAuthorizationUrl", "scopes"),
        *("documentationUrl", "iconUrl", "streaming", "pushNotifications", "extendedAgentCard"),
    }
)
"""Members that are required, or optional with explicit presence: kept even if empty."""

_MAPS = ("securitySchemes", "schemes")


def _pruned(value: Json, *, described: bool = False) -> Json:
    """Return the value without members that protobuf treats as absent. Cards and skills require a description."""
    if isinstance(value, list):
        return [_pruned(item, described=described) for item in value]
    if not isinstance(value, dict):
        return value
    found: Object = {}
    for name, item in value.items():
        if name == "params":
            found[name] = item  # free-form data: an empty value is significant
        elif name in _KEPT or (described and name == "description") or not _empty(name, item):
            found[name] = _pruned(item, described=name == "skills")
    return found


def _empty(name: str, value: Json) -> bool:
    return value in ("", []) or value is False or value is None or (value == {} and name in _MAPS)


# ------------------------------------------------------------------------------------------------------------ canonical


_EXACT = 2**53
_MOST = 10**21  # from here on, ECMAScript uses exponents


def canonical_json(value: Json) -> bytes:
    """Return the canonical text of a JSON value. Raise ValueError if JSON or ECMAScript can't represent it exactly."""
    return _text(value).encode("utf-8")


def _text(value: Json) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        if abs(value) > _EXACT and (abs(value) >= _MOST or ecmascript_number(float(value)) != str(value)):
            raise ValueError("this integer has no canonical form: ECMAScript would change it")
        return str(int(value))
    if isinstance(value, float):
        return ecmascript_number(value)
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_text(str(name))}:{_text(item)}" for name, item in members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    raise ValueError(f"{type(value).__name__} is not JSON")


def ecmascript_number(value: float) -> str:
    """Format like Number.prototype.toString. Python finds the same shortest digits, but formats them differently."""
    if not math.isfinite(value):
        raise ValueError("NaN and the infinities are not JSON")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))  # digits before the decimal point
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"
