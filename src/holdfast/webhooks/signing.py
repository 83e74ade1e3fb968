"""What a receiver can check: Standard Webhooks headers, and on request a JWT that anybody verifies by our key set."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

from holdfast.protocol.signatures import CardKey

TOLERANCE_SECONDS = 300  # a receiver should refuse what is older


def standard_headers(secret: bytes, delivery_id: str, moment: int, body: bytes) -> dict[str, str]:
    """webhook-id, webhook-timestamp and webhook-signature (v1: HMAC-SHA256). A repeat has the same id."""
    headers = {"webhook-id": delivery_id, "webhook-timestamp": str(moment)}
    if secret:
        content = f"{delivery_id}.{moment}.".encode() + body
        signature = base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()
        headers["webhook-signature"] = f"v1,{signature}"
    return headers


def secret_of(text: str) -> bytes:
    """The bytes of a secret: ``whsec_…`` is base64, as Standard Webhooks writes it; anything else is itself."""
    if text.startswith("whsec_"):
        try:
            return base64.b64decode(text.removeprefix("whsec_"), validate=True)
        except ValueError:
            pass
    return text.encode()


def verify(secret: bytes, headers: dict[str, str], body: bytes, *, now: int) -> bool:
    """Whether a delivery is ours, whole and fresh: for receivers written in Python."""
    try:
        delivery_id, moment = headers["webhook-id"], int(headers["webhook-timestamp"])
        given = headers["webhook-signature"].split()
    except (KeyError, ValueError):
        return False
    wanted = standard_headers(secret, delivery_id, moment, body)["webhook-signature"]
    fresh = abs(now - moment) <= TOLERANCE_SECONDS
    return fresh and any(hmac.compare_digest(wanted, signature) for signature in given)


def token(key: CardKey, audience: str, delivery_id: str, moment: int, body: bytes) -> str:
    """A JWT over this delivery: for whom, when, which, and a digest of the body."""
    import jwt  # noqa: PLC0415 - the extra ``auth``, which whoever has a key has

    claims: dict[str, Any] = {
        "iat": moment,
        "exp": moment + TOLERANCE_SECONDS,
        "jti": delivery_id,
        "aud": audience,
        "request_body_sha256": hashlib.sha256(body).hexdigest(),
    }
    return jwt.encode(claims, key.key, algorithm=key.algorithm, headers={"kid": key.kid})
