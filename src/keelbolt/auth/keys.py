"""Keys that verify signatures. A key has a fixed set of algorithms, and can't be used with any other.

This prevents the classic confusion attacks: an RSA public key is never used as an HMAC secret, a secret is never used
as a public key, and no key has the algorithm "none".
"""

from __future__ import annotations

import binascii
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from keelbolt.errors import AuthMisconfigured, MissingExtra

try:
    import jwt
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import (
        load_der_public_key,
        load_pem_private_key,
        load_pem_public_key,
    )
    from cryptography.x509 import load_pem_x509_certificate
    from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm
except ImportError as error:
    raise MissingExtra("auth", "pyjwt[crypto]") from error

KeySource: TypeAlias = str | bytes | Mapping[str, Any]
"""A secret, a PEM (public key, certificate or private key), a JWK or a JWK Set, as text or as a mapping.

Text that begins with ``file:``, contains a path separator or names an existing file is the path of a file that holds
one of these. Bytes are always the key itself.
"""

SYMMETRIC = ("HS256", "HS384", "HS512")
ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
MIN_RSA_BITS = 2048

_RSA = frozenset(name for name in ASYMMETRIC if name[:2] in {"RS", "PS"})
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}  # RFC 7518: as long as the hash
_FILES = (".pem", ".key", ".pub", ".crt", ".jwk", ".jwks", ".json", ".txt")


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One key. ``algorithms`` are those that it may verify, ``kid`` is its id in a key set."""

    algorithms: frozenset[str]
    kid: str | None = None
    material: Any = field(default=None, repr=False, hash=False)

    def fits(self, algorithm: str, kid: str | None) -> bool:
        """Return whether this key may have signed a token with this header. Keys without an id match every id."""
        return algorithm in self.algorithms and (self.kid is None or kid is None or self.kid == kid)

    def verifies(self, algorithm: str, *, signed: bytes, signature: bytes) -> bool:
        return algorithm in self.algorithms and bool(
            jwt.get_algorithm_by_name(algorithm).verify(signed, self.material, signature)
        )


def load_keys(source: KeySource | Sequence[KeySource]) -> tuple[VerificationKey, ...]:
    """Return the keys of a configuration. Several sources allow a key rotation without an interruption."""
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return tuple(key for one in source for key in load_keys(one))
    if isinstance(source, Mapping):
        return _of_json(source)
    if isinstance(source, str):
        source = _named_file(source)
    text = source if isinstance(source, str) else source.decode("latin-1")
    raw = source.encode("utf-8", "surrogateescape") if isinstance(source, str) else source
    start = text.lstrip()
    if not start:
        raise AuthMisconfigured("the key is empty, so every token could be forged; give a secret, or a file with a key")
    if "-----BEGIN" in start:
        return (_of_pem(raw.strip()),)
    if start.startswith("{"):
        try:
            return _of_json(json.loads(text))
        except ValueError:
            pass  # a secret may look like JSON
    if start.startswith(("ssh-", "ecdsa-sha2-")):
        raise AuthMisconfigured("an SSH key can't verify tokens; give the public key as PEM (ssh-keygen -e -m PKCS8)")
    _refuse_der(raw)
    return (_of_secret(raw),)


def _named_file(text: str) -> str | bytes:
    """Return the contents of the file that this text names, or the text itself if it is a key.

    A path must never become the secret itself: a path can be guessed. So text that looks like a path is a readable
    file, or an error. The error does not include the text, which may be a secret.
    """
    start = text.strip()
    if "-----BEGIN" in start or start.startswith(("{", "ssh-", "ecdsa-sha2-")):
        return text
    if start.startswith(("http://", "https://")):
        raise AuthMisconfigured("the key is a URL; give the URL of a key set as jwks_url=")
    separators = {"/", os.sep, os.altsep or os.sep}
    if start.lower().startswith("file:"):
        path, why = unquote(urlsplit(start).path), "it begins with file:"
    elif any(separator in start for separator in separators):
        path, why = start, f"it contains {'/' if '/' in start else os.sep}"
    elif start.lower().endswith(_FILES):
        path, why = start, "it has a suffix of key files"
    elif os.path.isfile(start):  # noqa: PTH113 - Path.is_file raises for a name that is too long
        path, why = start, "a file has this name"
    else:
        return text
    try:
        found = Path(path).read_bytes().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a valid path"
        raise AuthMisconfigured(
            f"the key names a file ({why}), which can't be read: {reason}. Check the path and the permissions; "
            "pass a secret that contains a path separator as bytes"
        ) from None
    if not found:
        raise AuthMisconfigured(f"the key names a file ({why}), which is empty")
    return found


def keys_of_set(document: Mapping[str, Any]) -> tuple[VerificationKey, ...]:
    """Return the public keys of a published key set that can verify signatures; other entries are ignored.

    Published secrets and private keys prove nothing, because every client can download them.
    """
    entries = document.get("keys")
    found: list[VerificationKey] = []
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, Mapping) or entry.get("kty") == "oct" or "d" in entry:
            continue
        try:
            found.append(_of_jwk(entry))
        except AuthMisconfigured:
            continue
    return tuple(found)


def _of_json(document: Mapping[str, Any]) -> tuple[VerificationKey, ...]:
    if not isinstance(document.get("keys"), list):
        return (_of_jwk(document),)
    found = tuple(_of_jwk(entry) for entry in document["keys"])
    if not found:
        raise AuthMisconfigured("the key set is empty")
    return found


def _of_jwk(entry: Mapping[str, Any]) -> VerificationKey:
    kid, algorithm = entry.get("kid"), entry.get("alg")
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise AuthMisconfigured("this JWK is not meant to verify signatures")
    if not isinstance(kid, str | None) or not isinstance(algorithm, str | None):
        raise AuthMisconfigured("this JWK is damaged: kid and alg must be strings")
    jwk = {name: value for name, value in entry.items() if name in {"kty", "crv", "x", "y", "n", "e", "k"}}
    try:
        match entry.get("kty"):
            case "RSA":
                key = _of_public(RSAAlgorithm.from_jwk(jwk))
            case "EC":
                key = _of_public(ECAlgorithm.from_jwk(jwk))
            case "OKP":
                key = _of_public(OKPAlgorithm.from_jwk(jwk))
            case "oct":
                key = _of_secret(HMACAlgorithm.from_jwk(jwk))
            case _:
                raise AuthMisconfigured("a JWK must have a kty: RSA, EC, OKP or oct")
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, binascii.Error, UnsupportedAlgorithm):
        raise AuthMisconfigured("this JWK is damaged") from None  # the cause may contain key material
    algorithms = key.algorithms if algorithm is None else key.algorithms & {algorithm}
    if not algorithms:
        raise AuthMisconfigured("the alg of this JWK does not match its key")
    return replace(key, algorithms=algorithms, kid=kid)


def _of_pem(raw: bytes) -> VerificationKey:
    try:
        if b"-----BEGIN CERTIFICATE" in raw:
            return _of_public(load_pem_x509_certificate(raw).public_key())
        if b"PRIVATE KEY-----" in raw:
            return _of_public(load_pem_private_key(raw, password=None).public_key())
        return _of_public(load_pem_public_key(raw))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise AuthMisconfigured("this PEM contains no readable key") from None


def _of_public(key: Any) -> VerificationKey:
    match key:
        case RSAPublicKey() if key.key_size < MIN_RSA_BITS:
            raise AuthMisconfigured(f"the RSA key has {key.key_size} bits; at least {MIN_RSA_BITS} are needed")
        case RSAPublicKey():
            return VerificationKey(_RSA, material=key)
        case EllipticCurvePublicKey() if key.curve.name in _CURVES:
            return VerificationKey(frozenset({_CURVES[key.curve.name]}), material=key)
        case Ed25519PublicKey() | Ed448PublicKey():
            return VerificationKey(frozenset({"EdDSA"}), material=key)
        case _:
            raise AuthMisconfigured("this kind of key can't verify tokens; use RSA, P-256, P-384, P-521 or Ed25519")


def _refuse_der(raw: bytes) -> None:
    try:
        load_der_public_key(raw)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return
    raise AuthMisconfigured("the key is a public key in DER form; give it as PEM, or it could be mistaken for a secret")


def _of_secret(raw: bytes) -> VerificationKey:
    algorithms = frozenset(name for name, size in _SECRET_BYTES.items() if len(raw) >= size)
    if not algorithms:
        raise AuthMisconfigured(
            f"the secret has {len(raw)} bytes; at least 32 are needed, or tokens can be forged by guessing it. "
            "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return VerificationKey(algorithms, material=raw)
