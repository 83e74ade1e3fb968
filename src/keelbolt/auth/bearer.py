"""Bearer tokens: reads one from the headers, and authenticates fixed tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from keelbolt.auth.digests import SecretDigests
from keelbolt.auth.principal import Principal
from keelbolt.errors import CredentialsRefused

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
