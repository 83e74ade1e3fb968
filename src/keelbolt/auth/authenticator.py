"""The contract of authenticators, and how their answer becomes a principal."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, runtime_checkable

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.auth.schemes import Schemes, challenge, credential_headers, named
from keelbolt.errors import AuthenticationFailed, AuthMisconfigured, CredentialsMissing, CredentialsRefused

logger = logging.getLogger("keelbolt.auth")

Identity: TypeAlias = Any
"""A `Principal`; an object with ``id``, ``type``, ``roles`` and ``attrs``; a mapping of such names; or an owner."""

RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]


@runtime_checkable
class Authenticator(Protocol):
    """Who is calling, by the headers of a request."""

    def authenticate(self, headers: dict[str, str], /) -> Identity | Awaitable[Identity | None] | None:
        """The identity of the caller, None when nobody could be recognised. ``headers`` have names in small letters.

        May be a coroutine. To say why credentials are not accepted, raise `CredentialsRefused`; when it can't be known
        now, raise `AuthUnavailable`. Whatever else is raised is a defect and lets nobody in.
        """

    def security_schemes(self) -> Schemes:
        """What callers can send, as security schemes of the agent card."""


auth_identity_var: ContextVar[Principal | None] = ContextVar("auth_identity", default=None)
"""The caller on whose behalf the current code runs; None outside of a request."""


@contextmanager
def acting_as(principal: Principal) -> Iterator[None]:
    """Within this block ``principal`` is the value of `auth_identity_var`."""
    token = auth_identity_var.set(principal)
    try:
        yield
    finally:
        auth_identity_var.reset(token)


class Resolver:
    """Lets in whom its authenticator recognises, and nobody else.

    With ``require_auth=False`` a request without credentials is let in as anonymous. Credentials that are not accepted
    are refused all the same: their sender believes to be somebody, and as anonymous would not find what it owns.
    """

    def __init__(self, authenticator: Authenticator, *, require_auth: bool = True) -> None:
        missing = [
            name for name in ("authenticate", "security_schemes") if not callable(getattr(authenticator, name, None))
        ]
        if missing:
            raise TypeError(f"{type(authenticator).__name__} is no Authenticator: it lacks {' and '.join(missing)}")
        self.authenticator = authenticator
        self.require_auth = require_auth
        self.schemes = named(authenticator.security_schemes())
        self._credentials = credential_headers(self.schemes) - {"cookie"}  # cookies are sent for other reasons too

    async def principal(self, headers: Mapping[str, str] | RawHeaders) -> Principal:
        """The caller of a request with these headers (a mapping, or pairs of bytes as ASGI has them).

        Raises `CredentialsMissing` or `CredentialsRefused`, whose ``challenge`` names everything that may be sent
        instead, or `AuthUnavailable`.
        """
        try:
            return await self._principal(self._plain(headers))
        except AuthenticationFailed as failure:
            logger.debug("a caller was not let in: %s", failure.reason)
            refused = None if isinstance(failure, CredentialsMissing) else str(failure)
            failure.challenge = challenge(self.schemes, refused=refused)
            raise

    async def aclose(self) -> None:
        """Close the authenticator, if it has something to close."""
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
        for any_name, value in pairs:  # of a mapping too: those of web frameworks have a name as often as it was sent
            name = any_name.lower()
            if name not in found:
                found[name] = value
            elif name in self._credentials:  # a proxy may look at the one and we at the other
                raise CredentialsRefused("The request has credentials more than once.", reason="ambiguous")
            else:
                found[name] += ("; " if name == "cookie" else ", ") + value
        return found


def _check_text(principal: Principal) -> None:
    """Refuse names with half of a surrogate pair: they can't be stored with what the caller makes."""
    try:
        "".join((principal.owner, principal.tenant, principal.type, *principal.roles)).encode()
    except UnicodeEncodeError:
        raise CredentialsRefused("The caller's name is no text.", reason="claims") from None


def _decoded(headers: RawHeaders) -> Iterator[tuple[str, str]]:
    return ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


async def answer(authenticator: Authenticator, headers: dict[str, str]) -> Identity | None:
    """What the authenticator says, be it a plain function or a coroutine."""
    identity = authenticator.authenticate(headers)
    return await identity if inspect.isawaitable(identity) else identity


async def close(authenticator: Authenticator) -> None:
    """Close an authenticator that has an ``aclose()``."""
    aclose = getattr(authenticator, "aclose", None)
    if aclose is not None and inspect.isawaitable(closing := aclose()):
        await closing


def principal_of(identity: Identity) -> Principal:
    """The principal that an authenticator's answer means; refuses an answer that could mean anything else."""
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
            owner=owner,  # type: ignore[arg-type]  # checked there
            tenant="" if tenant is None else tenant,
            roles=frozenset() if parts["roles"] is None else parts["roles"],
            claims=claims,
            type=parts["type"] or "",
        )
    except TypeError as error:
        raise AuthMisconfigured(
            f"authenticate() answered with a {type(identity).__name__} that is no identity ({error}); "
            "answer with a Principal, or None"
        ) from error
