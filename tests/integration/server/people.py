"""Callers with real tokens."""

from __future__ import annotations

import time
from typing import Any

import jwt

from keelbolt.auth import ClaimMapping, JWTAuthenticator

SECRET = "a secret of the tests, of more than 32 bytes"
AUDIENCE = "agent"

Headers = list[tuple[str, str]]


def authenticator(**more: Any) -> JWTAuthenticator:
    """Return an authenticator of tokens with a tenant each."""
    more.setdefault("claim_mapping", ClaimMapping(tenant_claim="tenant"))
    return JWTAuthenticator(SECRET, audience=AUDIENCE, **more)


def token(owner: str, tenant: str | None = "acme", *, expires_in: float = 7200, **claims: Any) -> str:
    found = {"sub": owner, "aud": AUDIENCE, "exp": int(time.time() + expires_in), **claims}
    if tenant is not None:
        found["tenant"] = tenant
    return jwt.encode(found, SECRET, algorithm="HS256")


def bearer(owner: str, tenant: str | None = "acme", **more: Any) -> Headers:
    return [("authorization", f"Bearer {token(owner, tenant, **more)}")]
