"""The claims of a token with a verified signature: checks them, and maps them to a principal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from keelbolt.auth.principal import Principal
from keelbolt.errors import AuthMisconfigured, CredentialsRefused

MAX_TIME = 2**53  # seconds; larger numbers, NaN and Infinity are no times

ClaimName: TypeAlias = str | tuple[str, ...]
"""The name of a claim; a tuple is a path into nested claims: ``("realm_access", "roles")``."""


@dataclass(frozen=True, slots=True)
class ClaimMapping:
    """Selects the claims that make up the principal.

    With ``tenant_claim``, the claim is required: otherwise a token without it would belong to the unnamed tenant.
    ``roles_claim`` is a list, or a string of words like OAuth's ``scope``. ``attrs_claims`` are kept as the principal's
    claims, which are stored with everything that it starts; so the default is none.
    """

    id_claim: ClaimName = "sub"
    type_claim: ClaimName = "type"
    roles_claim: ClaimName = "roles"
    attrs_claims: tuple[str, ...] | list[str] = ()
    tenant_claim: ClaimName | None = None

    def principal(self, claims: Mapping[str, Any], *, tenant: str = "") -> Principal:
        """Return the principal of these claims; ``tenant`` is used if there is no tenant claim."""
        owner = _at(claims, self.id_claim)
        if isinstance(owner, int) and not isinstance(owner, bool):  # some issuers use numeric database ids
            owner = str(owner)
        if not isinstance(owner, str) or not owner:
            _refuse("The token names no subject.", "claims")
        if self.tenant_claim is not None:
            tenant = _at(claims, self.tenant_claim)
            if not isinstance(tenant, str) or not tenant:
                _refuse("The token names no tenant.", "claims")
        kind = _at(claims, self.type_claim)
        return Principal(
            owner=owner,
            tenant=tenant,
            roles=_roles(_at(claims, self.roles_claim)),
            claims={name: claims[name] for name in self.attrs_claims if name in claims},
            type=kind if isinstance(kind, str) and kind else "user",
        )


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The requirements on claims: not expired, the right issuer and audience, and complete."""

    issuers: frozenset[str] = frozenset()
    audiences: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()
    leeway_seconds: float = 0.0
    require_exp: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.leeway_seconds <= 600:
            raise AuthMisconfigured(
                "leeway must be from 0 to 600 seconds; it allows for clock differences and is not a grace period"
            )

    def check(self, claims: Mapping[str, Any], *, now: float) -> None:
        """Raise `CredentialsRefused` unless the claims are valid at the time ``now``."""
        expires = _time(claims, "exp", needed=self.require_exp)
        if expires > -math.inf and expires + self.leeway_seconds <= now:
            _refuse("The token has expired; get a new one.", "expired")
        for name in ("nbf", "iat"):
            if _time(claims, name) - self.leeway_seconds > now:
                _refuse("The token is not valid yet.", "early")
        self.check_issuer(claims)
        self._check_audience(claims.get("aud"))
        for name in self.required:
            if claims.get(name) is None:
                _refuse("The token lacks a claim that is required here.", "claims")

    def check_issuer(self, claims: Mapping[str, Any]) -> None:
        """Raise `CredentialsRefused` unless the token names one of the issuers."""
        issuer = claims.get("iss")
        if self.issuers and not (isinstance(issuer, str) and issuer in self.issuers):
            _refuse("The token is from another issuer.", "issuer")

    def _check_audience(self, audience: object) -> None:
        if not self.audiences:
            return
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            _refuse("The token is meant for another audience.", "audience")
        if self.audiences.isdisjoint(named):
            _refuse("The token is meant for another audience.", "audience")


def _time(claims: Mapping[str, Any], name: str, *, needed: bool = False) -> int | float:
    value = claims.get(name)
    if value is None and not needed:
        return -math.inf
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < MAX_TIME:
        _refuse(f"The token's {name} is {'missing' if value is None else 'not a time'}.", "claims")
    return value


def _at(claims: Mapping[str, Any], name: ClaimName) -> Any:
    value: Any = claims
    for part in (name,) if isinstance(name, str) else name:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _roles(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset()
    roles = value.split() if isinstance(value, str) else value
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        _refuse("The token's roles are not a list of strings.", "claims")
    return frozenset(roles)


def _refuse(message: str, reason: str) -> NoReturn:
    raise CredentialsRefused(message, reason=reason)
