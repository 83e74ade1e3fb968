"""Authenticates callers by signed JSON Web Tokens, which are parsed strictly before the signature is verified.

Two parsers must not read one token differently. So only one form is valid: three segments of canonical base64url, JSON
objects without duplicate names, and no header that selects a key, changes the payload or requires an unsupported
feature.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from keelbolt.auth.claims import ClaimMapping, ClaimRules
from keelbolt.auth.jwks import JWKSCache
from keelbolt.auth.keys import ASYMMETRIC, SYMMETRIC, KeySource, VerificationKey, load_keys
from keelbolt.auth.principal import Principal
from keelbolt.auth.schemes import Schemes, named
from keelbolt.auth.shared_secrets import bearer_token
from keelbolt.errors import AuthMisconfigured, CredentialsRefused

TOKEN_TYPES = ("JWT", "at+jwt")  # access tokens (RFC 7519, RFC 9068); "dpop+jwt" or "logout+jwt" is none

_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
_KEY_HEADERS = ("jku", "jwk", "x5u", "x5c")  # a key inside the token proves nothing about the issuer
_CHANGING_HEADERS = ("crit", "b64", "zip", "cty", "enc")


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A well-formed token. Its contents must not be trusted before the signature is verified."""

    algorithm: str
    kid: str | None
    signed: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def take_apart(token: str, *, token_types: Collection[str] = TOKEN_TYPES) -> UnverifiedToken:
    segments = token.split(".")
    if len(segments) != 3:
        _refuse("The token is not a signed JWT.", "malformed")
    head, payload, signature = map(_decode, segments)
    header = json_object(head)
    for name in (*_KEY_HEADERS, *_CHANGING_HEADERS):
        if name in header:
            _refuse(f"The token's header {name} is not allowed.", "header")
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or not isinstance(kid, str | None) or not isinstance(kind, str):
        _refuse("The token's header is invalid.", "header")
    if kind.lower().removeprefix("application/") not in {known.lower() for known in token_types}:
        _refuse("The token is of another type than an access token.", "type")
    return UnverifiedToken(algorithm, kid, ".".join(segments[:2]).encode(), payload, signature)


def json_object(raw: bytes) -> dict[str, Any]:
    """Return a JSON object. Raise CredentialsRefused for duplicate names, NaN, infinities or lone surrogates."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number)
        if b"\\u" in raw:  # only an escape can be a lone surrogate
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        _refuse("The token is not a signed JWT.", "malformed")
    if not isinstance(value, dict):
        _refuse("The token is not a signed JWT.", "malformed")
    return value


def _decode(segment: str) -> bytes:
    if not _SEGMENT.fullmatch(segment) or len(segment) % 4 == 1:
        _refuse("The token is not a signed JWT.", "malformed")
    raw = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != segment.encode():  # the unused last bits must be zero
        _refuse("The token is not a signed JWT.", "malformed")
    return raw


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        _refuse("The token contains the same name twice.", "duplicate")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _refuse(message: str, reason: str) -> NoReturn:
    raise CredentialsRefused(message, reason=reason)


MAX_TOKEN_BYTES = 16_384

_USUAL = ("HS256", "RS256", "ES256", "ES384", "ES512", "EdDSA")


class JWTAuthenticator:
    """Requires a token of one issuer: signed with its key, for this audience, not expired, with the required claims.

    The key is a secret, a PEM, a JWK or several of them as ``key``; or the issuer's key set by its URL, as ``jwks_url``
    or as a `JWKSCache`. ``algorithms`` are the accepted ones, by default the usual one of each key. For several issuers
    use one authenticator each, in `AnyOf`: then no key or algorithm of one issuer is valid for tokens of another.

    The token's ``aud`` is checked if ``audience`` is given: without it, tokens that the issuer made for other services
    are accepted too. With ``require_exp=False`` a token without ``exp`` is accepted; it never expires.

    `authenticate` returns None for a request without a bearer token, and raises `CredentialsRefused` for an invalid
    token.
    """

    def __init__(
        self,
        key: KeySource | Sequence[KeySource] | None = None,
        *,
        jwks_url: str | None = None,
        jwks: JWKSCache | None = None,
        algorithms: Iterable[str] | None = None,
        audience: str | Iterable[str] | None = None,
        issuer: str | Iterable[str] | None = None,
        claim_mapping: ClaimMapping | None = None,
        require_claims: Iterable[str] | None = None,
        require_exp: bool = True,
        tenant: str = "",
        leeway_seconds: float = 10.0,
        max_token_bytes: int = MAX_TOKEN_BYTES,
        token_types: Collection[str] = TOKEN_TYPES,
        schemes: Schemes | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if sum(given is not None for given in (key, jwks_url, jwks)) != 1:
            raise AuthMisconfigured("pass one of key=, jwks_url= and jwks=")
        self._mapping = claim_mapping or ClaimMapping()
        self._rules = ClaimRules(
            issuers=_words("issuer", issuer),
            audiences=_words("audience", audience),
            required=tuple(sorted(_words("require_claims", require_claims))),
            leeway_seconds=leeway_seconds,
            require_exp=require_exp,
        )
        if key is None and not self._rules.issuers:
            raise AuthMisconfigured("a key set needs issuer=: many issuers publish one set for all of their customers")
        if tenant and self._mapping.tenant_claim is not None:
            raise AuthMisconfigured("pass tenant or tenant_claim, not both")
        self._keys = () if key is None else load_keys(key)
        self._jwks = JWKSCache(jwks_url) if jwks_url is not None else jwks
        self._algorithms = _allowed(algorithms, self._keys)
        self._tenant = tenant
        self._max_token_bytes = max_token_bytes
        self._token_types = frozenset(token_types)
        self._schemes: Schemes = [{"type": "http", "scheme": "bearer"}] if schemes is None else schemes
        named(self._schemes)  # raises for a wrong scheme now, not when the card is built
        self._clock = clock

    async def authenticate(self, headers: Mapping[str, str]) -> Principal | None:
        token = bearer_token(headers, max_bytes=self._max_token_bytes)
        return None if token is None else await self.principal(token)

    async def principal(self, token: str) -> Principal:
        """Return the principal of this token. Raise `CredentialsRefused` if the token is invalid."""
        unverified = take_apart(token, token_types=self._token_types)
        if unverified.algorithm not in self._algorithms:
            raise CredentialsRefused("The token is signed in a way that is not accepted here.", reason="algorithm")
        claims = json_object(unverified.payload)
        self._rules.check_issuer(claims)  # tokens of other issuers must not depend on the key set of this one
        keys = await self._find(unverified.algorithm, unverified.kid)
        if not keys:
            raise CredentialsRefused("The token is signed with a key that is not known here.", reason="key")
        signed, signature = unverified.signed, unverified.signature
        if not any(key.verifies(unverified.algorithm, signed=signed, signature=signature) for key in keys):
            raise CredentialsRefused("The token's signature is wrong.", reason="signature")
        self._rules.check(claims, now=self._clock())
        return self._mapping.principal(claims, tenant=self._tenant)

    def security_schemes(self) -> Schemes:
        return self._schemes

    async def aclose(self) -> None:
        if self._jwks is not None:
            await self._jwks.aclose()

    async def _find(self, algorithm: str, kid: str | None) -> tuple[VerificationKey, ...]:
        if self._jwks is not None:
            return await self._jwks.find(algorithm, kid)
        return tuple(key for key in self._keys if key.fits(algorithm, kid))


def _allowed(algorithms: Iterable[str] | None, keys: tuple[VerificationKey, ...]) -> frozenset[str]:
    possible = frozenset[str]().union(*(key.algorithms for key in keys)) if keys else frozenset(ASYMMETRIC)
    if algorithms is None:
        return possible.intersection(_USUAL) or possible
    allowed = _words("algorithms", algorithms)
    if unknown := allowed.difference(SYMMETRIC, ASYMMETRIC):
        raise AuthMisconfigured(f"{', '.join(sorted(unknown))}: not one of {', '.join((*SYMMETRIC, *ASYMMETRIC))}")
    if useless := allowed - possible:
        raise AuthMisconfigured(f"{', '.join(sorted(useless))}: none of the given keys can verify it")
    if not allowed:
        raise AuthMisconfigured("algorithms is empty, so every token would be refused")
    return allowed


def _words(name: str, value: str | Iterable[str] | None) -> frozenset[str]:
    words = frozenset() if value is None else frozenset([value] if isinstance(value, str) else value)
    if not all(isinstance(word, str) and word for word in words):
        raise AuthMisconfigured(f"{name} must be one or more non-empty strings")
    return words
