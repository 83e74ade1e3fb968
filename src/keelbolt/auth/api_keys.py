"""API keys in their own header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from keelbolt.auth.digests import SecretDigests
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
