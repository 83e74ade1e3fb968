"""Fixed secrets, kept as SHA-256 digests and compared in constant time."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from hashlib import sha256

from keelbolt.auth.principal import Principal
from keelbolt.errors import AuthMisconfigured

MIN_SECRET_CHARACTERS = 16  # a plain SHA-256 only protects secrets that can't be guessed

_DIGEST = re.compile(r"[0-9a-f]{64}")


def sha256_hex(secret: str) -> str:
    """Return the digest under which an API key or a token is configured."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_secret() -> str:
    """Return a new API key or token with 256 random bits. Give it to the caller and keep its `sha256_hex`."""
    return f"kb_{secrets.token_urlsafe(32)}"


class SecretDigests:
    """Principals by the digest of their secret."""

    def __init__(self, table: Mapping[str, Principal | str]) -> None:
        if not table:
            raise AuthMisconfigured("no key is given, so every caller would be refused; pass at least one")
        self._table: list[tuple[bytes, Principal]] = []
        for digest, owner in table.items():
            if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
                raise AuthMisconfigured("pass a key as its SHA-256 in hexadecimal: sha256_hex(key)")
            principal = owner if isinstance(owner, Principal) else Principal(owner)
            if principal.anonymous:
                raise AuthMisconfigured("a key needs an owner: pass a Principal with an owner")
            self._table.append((bytes.fromhex(digest), principal))

    @staticmethod
    def table_of(secrets_: Mapping[str, Principal | str]) -> dict[str, Principal | str]:
        """Return the table of digests for plain secrets."""
        if any(len(secret) < MIN_SECRET_CHARACTERS for secret in secrets_):
            raise AuthMisconfigured(
                f"a key must have at least {MIN_SECRET_CHARACTERS} characters; new_secret() makes one"
            )
        return {sha256_hex(secret): principal for secret, principal in secrets_.items()}

    def find(self, secret: str) -> Principal | None:
        """Return the principal of this secret. Takes the same time for valid and invalid secrets, at any position."""
        wanted = sha256(secret.encode("utf-8", "surrogatepass")).digest()
        found: Principal | None = None
        for digest, principal in self._table:
            if hmac.compare_digest(digest, wanted):
                found = principal
        return found
