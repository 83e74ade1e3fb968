"""Combines several authenticators."""

from __future__ import annotations

from typing import Any

from keelbolt.auth.authenticator import Authenticator, answer, close, principal_of
from keelbolt.auth.principal import Principal
from keelbolt.auth.schemes import named
from keelbolt.errors import AuthMisconfigured, AuthUnavailable, CredentialsRefused


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
            # The most specific refusal helps the caller most: "expired" rather than "unknown".
            raise next((refusal for refusal in refusals if refusal.reason != "unknown"), refusals[0])
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
