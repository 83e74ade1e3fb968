"""Authentication: authenticators turn the headers of a request into a `Principal`.

    resolver = Resolver(JWTAuthenticator(secret, audience="my-agent"))
    principal = await resolver.principal(request_headers)

`JWTAuthenticator` and `JWKSCache` need the extra ``auth`` and are imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keelbolt.auth.authenticator import AnyOf, Authenticator, Resolver, acting_as, auth_identity_var
from keelbolt.auth.claims import ClaimMapping
from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.auth.shared_secrets import APIKeyAuthenticator, TokenAuthenticator, new_secret, sha256_hex
from keelbolt.lazy import lazy_names

if TYPE_CHECKING:
    from keelbolt.auth.jwks import JWKSCache
    from keelbolt.auth.jwt import JWTAuthenticator

__all__ = [
    "ANONYMOUS",
    "APIKeyAuthenticator",
    "AnyOf",
    "Authenticator",
    "ClaimMapping",
    "JWKSCache",
    "JWTAuthenticator",
    "Principal",
    "Resolver",
    "TokenAuthenticator",
    "acting_as",
    "auth_identity_var",
    "new_secret",
    "sha256_hex",
]

__getattr__ = lazy_names(
    __name__, {"JWKSCache": "keelbolt.auth.jwks", "JWTAuthenticator": "keelbolt.auth.jwt"}
)  # these need the extra ``auth``
