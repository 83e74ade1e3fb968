"""The interface of authenticators, the conversion of their results to principals, and combinations of several."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, runtime_checkable

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.auth.schemes import Schemes, challenge, credential_headers, named
from keelbolt.errors import (
    AuthenticationFailed,
    AuthMisconfigured,
    AuthUnavailable,
    CredentialsMissing,
    CredentialsRefused,
)

# Reasons that credentials for another authenticator get, too; the higher, the more likely.
_FOREIGN = {"signature": 1, "key": 2, "issuer": 3, "algorithm": 4, "malformed": 5, "unknown": 6}


class AnyOf:
    """Accepts a caller that any of its authenticators identifies. They run in order; the first identity is used.

    Owners with the same name from two issuers are the same owner: give every issuer its own tenant unless their names
    can't collide.
    """

    def __init__(self, *authenticators: Authenticator) -> None:
        if not authenticators:
            raise AuthMisconfigured("AnyOf() needs at least one authenticator; without one, every caller is refused")
        self._authenticators = authenticators
        self._schemes = _schemes(authenticators)

    async def authenticate(self, headers: dict[str, str]) -> Principal | None:
        refusals: list[CredentialsRefused] = []
        unavailable: AuthUnavailable | None = None
        for authenticator in self._authenticators:
            try:
                identity = await answer(authenticator, headers)
            except CredentialsRefused as refusal:  # the next one may know these credentials
                refusals.append(refusal)
            except AuthUnavailable as error:
                unavailable = unavailable or error
            else:
                if identity is not None and not (principal := principal_of(identity)).anonymous:
                    return principal
        if unavailable is not None:  # the unavailable authenticator might have accepted them
            raise unavailable
        if refusals:
            # That of the authenticator which knows the credentials: "expired" rather than "unknown".
            raise min(refusals, key=lambda refusal: _FOREIGN.get(refusal.reason, 0))
        return None

    def security_schemes(self) -> dict[str, dict[str, Any]]:
        return self._schemes

    async def aclose(self) -> None:
        for authenticator in self._authenticators:
            await close(authenticator)


def _schemes(authenticators: tuple[Authenticator, ...]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for authenticator in authenticators:
        for name, scheme in named(authenticator.security_schemes()).items():
            if scheme in found.values():
                continue
            own_name, number = name, 2
            while own_name in found:
                own_name, number = f"{name}{number}", number + 1
            found[own_name] = scheme
    return found


# -------------------------------------------------------------------------------------------------------- authenticator


logger = logging.getLogger("keelbolt.auth")

Identity: TypeAlias = Any
"""A `Principal`; an object with ``id``, ``type``, ``roles`` and ``attrs``; a mapping of such names; or an owner."""

RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]


@runtime_checkable
class Authenticator(Protocol):
    """Identifies the caller of a request by its headers."""

    def authenticate(self, headers: dict[str, str], /) -> Identity | Awaitable[Identity | None] | None:
        """Return the identity of the caller, or None if it is unknown. ``headers`` have lower-case names.

        May be a coroutine. Raise `CredentialsRefused` with the reason if the credentials are invalid, and
        `AuthUnavailable` if they can't be checked now. Any other exception is a defect, and the caller is rejected.
        """

    def security_schemes(self) -> Schemes:
        """Return the accepted credentials, as security schemes of the agent card."""


auth_identity_var: ContextVar[Principal | None] = ContextVar("auth_identity", default=None)
"""The caller for which the current code runs; None outside of a request."""


@contextmanager
def acting_as(principal: Principal) -> Iterator[None]:
    """Set `auth_identity_var` to ``principal`` within the block."""
    token = auth_identity_var.set(principal)
    try:
        yield
    finally:
        auth_identity_var.reset(token)


class Resolver:
    """Accepts the callers that its authenticator identifies, and rejects all others.

    With ``require_auth=False``, a request without credentials is accepted as anonymous. Invalid credentials are
    rejected all the same: their sender expects its own identity, and as anonymous would not find its data.
    """

    def __init__(self, authenticator: Authenticator, *, require_auth: bool = True) -> None:
        missing = [
            name for name in ("authenticate", "security_schemes") if not callable(getattr(authenticator, name, None))
        ]
        if missing:
            raise TypeError(f"{type(authenticator).__name__} is not an Authenticator: it lacks {' and '.join(missing)}")
        self.authenticator = authenticator
        self.require_auth = require_auth
        self.schemes = named(authenticator.security_schemes())
        self._credentials = credential_headers(self.schemes) - {"cookie"}  # cookies are sent for other reasons too

    async def principal(self, headers: Mapping[str, str] | RawHeaders) -> Principal:
        """Return the caller of a request with these headers (a mapping, or pairs of bytes as in ASGI).

        Raise `CredentialsMissing` or `CredentialsRefused`, whose ``challenge`` lists the accepted schemes, or
        `AuthUnavailable`.
        """
        try:
            return await self._principal(self._plain(headers))
        except AuthenticationFailed as failure:
            logger.debug("authentication failed: %s", failure.reason)
            refused = None if isinstance(failure, CredentialsMissing) else str(failure)
            failure.challenge = challenge(self.schemes, refused=refused)
            raise

    async def aclose(self) -> None:
        """Close the authenticator, if it has an ``aclose()``."""
        await close(self.authenticator)

    async def _principal(self, headers: dict[str, str]) -> Principal:
        identity = await answer(self.authenticator, headers)
        principal = ANONYMOUS if identity is None else principal_of(identity)
        if not principal.anonymous:
            _check_text(principal)
            return principal
        if any(name in headers for name in self._credentials):
            raise CredentialsRefused
        if self.require_auth:
            raise CredentialsMissing
        return principal

    def _plain(self, headers: Mapping[str, str] | RawHeaders) -> dict[str, str]:
        pairs = headers.items() if isinstance(headers, Mapping) else _decoded(headers)
        found: dict[str, str] = {}
        for any_name, value in pairs:  # mappings of web frameworks may repeat a name too
            name = any_name.lower()
            if name not in found:
                found[name] = value
            elif name in self._credentials:  # a proxy might check another one than we do
                raise CredentialsRefused("The request has credentials more than once.", reason="ambiguous")
            else:
                found[name] += ("; " if name == "cookie" else ", ") + value
        return found


def _check_text(principal: Principal) -> None:
    """Raise CredentialsRefused for names with a lone surrogate: they can't be stored."""
    try:
        "".join((principal.owner, principal.tenant, principal.type, *principal.roles)).encode()
    except UnicodeEncodeError:
        raise CredentialsRefused("The caller's name is not text.", reason="claims") from None


def _decoded(headers: RawHeaders) -> Iterator[tuple[str, str]]:
    return ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


async def answer(authenticator: Authenticator, headers: dict[str, str]) -> Identity | None:
    """Return the result of the authenticator, which may be a function or a coroutine."""
    identity = authenticator.authenticate(headers)
    return await identity if inspect.isawaitable(identity) else identity


async def close(authenticator: Authenticator) -> None:
    """Close an authenticator that has an ``aclose()``."""
    aclose = getattr(authenticator, "aclose", None)
    if aclose is not None and inspect.isawaitable(closing := aclose()):
        await closing


def principal_of(identity: Identity) -> Principal:
    """Return the principal for an authenticator's result. Raise AuthMisconfigured for an ambiguous result."""
    if isinstance(identity, Principal):
        return identity
    if isinstance(identity, str):
        return Principal(identity)
    if isinstance(identity, Mapping):
        parts = {name: identity.get(name) for name in ("tenant", "roles", "type")}
        owner = next((identity[name] for name in ("owner", "id", "sub") if name in identity), None)
        claims = identity.get("claims", identity.get("attrs"))
    else:
        parts = {name: getattr(identity, name, None) for name in ("tenant", "roles", "type")}
        owner, claims = getattr(identity, "id", None), getattr(identity, "attrs", None)
    claims = claims if isinstance(claims, Mapping) else {}
    tenant = parts["tenant"] if parts["tenant"] is not None else claims.get("tenant")
    try:
        return Principal(
            owner=owner,  # type: ignore[arg-type]  # checked by Principal
            tenant="" if tenant is None else tenant,
            roles=frozenset() if parts["roles"] is None else parts["roles"],
            claims=claims,
            type=parts["type"] or "",
        )
    except TypeError as error:
        raise AuthMisconfigured(
            f"authenticate() returned a {type(identity).__name__} that is not an identity ({error}); "
            "return a Principal or None"
        ) from error
