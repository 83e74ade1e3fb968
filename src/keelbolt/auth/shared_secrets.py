"""Fixed secrets, as API keys and as bearer tokens: kept as SHA-256 digests and compared in constant time."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from keelbolt.auth.principal import Principal
from keelbolt.errors import AuthMisconfigured, CredentialsRefused

MAX_KEY_BYTES = 1024

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OTHERS = {"authorization", "cookie", "proxy-authorization"}


class APIKeyAuthenticator:
    """API keys, each with its principal: ``{sha256_hex(key): principal}``, sent in the header ``header``.

    Several keys may belong to one principal, so that a key can be rotated without an interruption. Keys are kept as
    digests; `APIKeyAuthenticator.of` takes the plain keys.
    """

    def __init__(self, digests: Mapping[str, Principal | str], *, header: str = "X-API-Key") -> None:
        if not _HEADER.fullmatch(header) or header.lower() in _OTHERS:
            raise AuthMisconfigured(f"{header!r} can't be the header of an API key; choose one like X-API-Key")
        self._digests = SecretDigests(digests)
        self._header = header

    @classmethod
    def of(cls, keys: Mapping[str, Principal | str], *, header: str = "X-API-Key") -> APIKeyAuthenticator:
        """Return an authenticator for plain keys, which it does not keep."""
        return cls(SecretDigests.table_of(keys), header=header)

    def authenticate(self, headers: Mapping[str, str]) -> Principal | None:
        key = headers.get(self._header.lower())
        if key is None:
            return None
        principal = self._digests.find(key.strip()) if len(key) <= MAX_KEY_BYTES else None
        if principal is None:
            raise CredentialsRefused("The API key is not accepted.", reason="unknown")
        return principal

    def security_schemes(self) -> list[dict[str, Any]]:
        return [{"type": "apiKey", "in": "header", "name": self._header}]


# --------------------------------------------------------------------------------------------------------------- bearer


_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def bearer_token(headers: Mapping[str, str], *, max_bytes: int = 16_384) -> str | None:
    """Return the token of an ``Authorization: Bearer …`` header; None without such a header."""
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() != "bearer":
        return None
    token = token.strip()
    if len(token) > max_bytes:  # before any parsing
        raise CredentialsRefused(f"The token is too long; the limit is {max_bytes} bytes.", reason="size")
    if not _TOKEN.fullmatch(token):
        raise CredentialsRefused("The Authorization header contains no bearer token.", reason="malformed")
    return token


class TokenAuthenticator:
    """Fixed bearer tokens, each with its principal: ``{sha256_hex(token): principal}``.

    Tokens are kept as digests, so that neither memory nor a configuration file holds one; `TokenAuthenticator.of` takes
    the plain tokens. An unknown token may belong to another authenticator (see `AnyOf`), so the message only says that
    it is not accepted.
    """

    def __init__(self, digests: Mapping[str, Principal | str]) -> None:
        self._digests = SecretDigests(digests)

    @classmethod
    def of(cls, tokens: Mapping[str, Principal | str]) -> TokenAuthenticator:
        """Return an authenticator for plain tokens, which it does not keep."""
        return cls(SecretDigests.table_of(tokens))

    def authenticate(self, headers: Mapping[str, str]) -> Principal | None:
        token = bearer_token(headers)
        if token is None:
            return None
        principal = self._digests.find(token)
        if principal is None:
            raise CredentialsRefused("The token is not accepted.", reason="unknown")
        return principal

    def security_schemes(self) -> list[dict[str, Any]]:
        return [{"type": "http", "scheme": "bearer"}]


# -------------------------------------------------------------------------------------------------------------- digests


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
