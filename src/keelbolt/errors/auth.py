"""Who is calling?"""

from __future__ import annotations

from typing import ClassVar

from keelbolt.errors.base import KeelboltError


class AuthError(KeelboltError):
    """Something went wrong with authentication."""


class AuthMisconfigured(AuthError):
    """This authenticator can't work as it was set up; change its arguments."""


class AuthenticationFailed(AuthError):
    """The caller is not authenticated; send valid credentials.

    The message may be shown to the caller: it never holds anything of a credential. ``reason`` is one word for logs and
    metrics, ``challenge`` the value of the WWW-Authenticate header.
    """

    default_reason: ClassVar[str] = "refused"

    def __init__(self, message: str | None = None, *, reason: str | None = None, challenge: str = "Bearer") -> None:
        self.reason = reason or self.default_reason
        self.challenge = challenge
        super().__init__(message)


class CredentialsMissing(AuthenticationFailed):
    """This request carries no credentials; send them as described in the agent card's securitySchemes."""

    default_reason = "missing"


class CredentialsRefused(AuthenticationFailed):
    """These credentials are not accepted; get new ones."""


class AuthUnavailable(AuthError):
    """Credentials can't be checked now, because the keys for it can't be loaded; try again later."""

    retryable = True
