"""Signatures of deliveries: Standard Webhooks headers, and on request a JWT that the public key set verifies."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from keelbolt.protocol.signatures import CardKey

TOLERANCE_SECONDS = 300  # a receiver should refuse older deliveries

issued_secrets: ContextVar[list[str] | None] = ContextVar("issued_secrets", default=None)
"""The signing secrets that the current request created, for its response: they are shown once."""


def new_signing_secret() -> str:
    """Return a secret of 256 random bits, in the format of Standard Webhooks."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def issue(secret: str) -> None:
    """Return a new secret to the caller of the current request, if there is one."""
    if (issued := issued_secrets.get()) is not None:
        issued.append(secret)


def standard_headers(keys: Iterable[bytes], delivery_id: str, moment: int, body: bytes) -> dict[str, str]:
    """Return webhook-id, webhook-timestamp and webhook-signature (v1: HMAC-SHA256, one for each non-empty key).

    A repeat has the same id.
    """
    headers = {"webhook-id": delivery_id, "webhook-timestamp": str(moment)}
    if signatures := [sign(secret, delivery_id, moment, body) for secret in keys if secret]:
        headers["webhook-signature"] = " ".join(signatures)
    return headers


def sign(secret: bytes, delivery_id: str, moment: int, body: bytes) -> str:
    """Return one signature, in the format of Standard Webhooks."""
    content = f"{delivery_id}.{moment}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode()


def secret_of(text: str) -> bytes:
    """Return the bytes of a secret: ``whsec_…`` is base64, as in Standard Webhooks; other text is used as it is."""
    if text.startswith("whsec_"):
        try:
            return base64.b64decode(text.removeprefix("whsec_"), validate=True)
        except ValueError:
            pass
    return text.encode()


def verify(secret: str | bytes, headers: Mapping[str, str], body: bytes, *, now: float | None = None) -> bool:
    """Return whether a delivery is authentic, complete and recent. For receivers in Python; header case is ignored."""
    known = secret_of(secret) if isinstance(secret, str) else secret
    given = {name.lower(): value for name, value in headers.items()}
    try:
        delivery_id, moment = given["webhook-id"], int(given["webhook-timestamp"])
        signatures = given["webhook-signature"].split()
    except (KeyError, ValueError):
        return False
    if not known or abs((time.time() if now is None else now) - moment) > TOLERANCE_SECONDS:
        return False
    wanted = sign(known, delivery_id, moment, body).encode()
    return any(hmac.compare_digest(wanted, signature.encode()) for signature in signatures)


def token(key: CardKey, audience: str, delivery_id: str, moment: int, body: bytes) -> str:
    """Return a JWT for this delivery: audience, time, id, and a digest of the body."""
    import jwt  # noqa: PLC0415 - the extra ``auth``, which is required for a key

    claims: dict[str, Any] = {
        "iat": moment,
        "exp": moment + TOLERANCE_SECONDS,
        "jti": delivery_id,
        "aud": audience,
        "request_body_sha256": hashlib.sha256(body).hexdigest(),
    }
    return jwt.encode(claims, key.key, algorithm=key.algorithm, headers={"kid": key.kid})
