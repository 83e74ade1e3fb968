"""Errors of requests: their content, their authentication, the skills that they name, and calls of other agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from keelbolt.errors.root import KeelboltError


class FieldViolation(NamedTuple):
    """The problem with one field: its path, such as ``message.parts[0].text``, and the reason, never the value."""

    field: str
    description: str


class ProtocolError(KeelboltError):
    """The request violates the protocol.

    ``request_id`` is the JSON of the JSON-RPC id to answer with, once it was read.
    """

    request_id: bytes = b"null"


class ParseError(ProtocolError):
    """The request is not JSON."""


class InvalidRequestError(ProtocolError):
    """This is JSON, but not a request."""


class RequestTooLargeError(InvalidRequestError):
    """The request is larger than this agent accepts; send less."""


class HeadersTooLargeError(InvalidRequestError):
    """The path, the query and the headers are larger than this agent accepts; send less."""


class RequestTimeoutError(InvalidRequestError):
    """The body did not arrive in time; send the request again."""

    retryable = True


class UnsupportedMediaTypeError(InvalidRequestError):
    """The body must be JSON; send Content-Type: application/json."""


class MisdirectedRequestError(InvalidRequestError):
    """This agent is not served under the name in the Host header; its operator can allow it (url, allowed_hosts)."""


class ForeignOriginError(InvalidRequestError):
    """A web page of another origin may not change anything here; the operator can allow its origin (cors_origins)."""


class BusyError(ProtocolError):
    """The agent is busy; try again later."""

    retryable = True

    def __init__(self, message: str | None = None, *, retry_after: int = 5) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class RateLimitedError(BusyError):
    """Too many requests; slow down."""


class TooManyStreamsError(BusyError):
    """Too many streams are open; close some, or try again later."""


class StoppingError(BusyError):
    """The agent is stopping. The task continues; resume the stream after the last event that arrived."""


class MethodNotFoundError(ProtocolError):
    """There is no such method."""


class TenantNotFoundError(ProtocolError):
    """This caller has no such tenant."""


class InvalidParamsError(ProtocolError):
    """The parameters are not valid."""

    def __init__(self, message: str | None = None, violations: Sequence[FieldViolation] = ()) -> None:
        self.violations = tuple(violations)
        if message is None and violations:
            first = violations[0]
            message = f"{first.field}: {first.description}" if first.field else first.description
        super().__init__(message)


class VersionNotSupportedError(ProtocolError):
    """This version of A2A is not supported; send A2A-Version: 1.0 or 0.3."""


class ExtensionSupportRequiredError(ProtocolError):
    """The agent requires an extension; name it in the A2A-Extensions header."""


class PushNotificationNotSupportedError(ProtocolError):
    """This agent sends no push notifications."""


class ExtendedCardNotConfiguredError(ProtocolError):
    """This agent has no extended card."""


class CardSignatureError(ProtocolError):
    """No signature of this card was made by a trusted key; do not trust the card, it may have been altered."""


MAX_NAME_CHARACTERS = 200


class SkillNotFoundError(ProtocolError):
    """Skill not found: there is no such skill."""

    def __init__(self, skill_id: str | None = None) -> None:
        self.data = {"type": "ModuleNotFoundError"}
        super().__init__(None if skill_id is None else f"Skill not found: {_plain(skill_id)}")


class SkillRequiredError(InvalidParamsError):
    """Missing required parameter: metadata.skillId"""

    def __init__(self, message: str | None = None) -> None:
        self.data = {"type": "InvalidInputError"}
        super().__init__(message)


class SkillInputError(InvalidParamsError):
    """Invalid params: the message does not hold an input that this skill takes."""

    def __init__(
        self,
        message: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        *,
        kind: str = "InvalidInputError",
    ) -> None:
        self.data: dict[str, Any] = {"type": kind}
        if errors:
            self.data["errors"] = [dict(error) for error in errors]
        super().__init__(message, [FieldViolation(error["path"], error["message"]) for error in errors])


def _plain(name: str) -> str:
    """A name from a client, shortened and safe to repeat."""
    return "".join(character if character.isprintable() else "?" for character in name[:MAX_NAME_CHARACTERS])


# ----------------------------------------------------------------------------------------------------------------- auth


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


# --------------------------------------------------------------------------------------------------------------- client


class A2AClientError(KeelboltError):
    """An agent could not be called."""


class A2AConnectionError(A2AClientError):
    """The agent can't be reached, or the connection broke.

    ``sent`` is False when nothing of the request left this process; otherwise the agent may have received it.
    """

    retryable = True

    def __init__(self, message: str | None = None, *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)


class A2ATimeoutError(A2AConnectionError):
    """The agent did not answer in time; it may still be working."""


class A2ADiscoveryError(A2AClientError):
    """There is no usable agent card; check the URL."""


class A2AServerError(A2AClientError):
    """The agent returned an error.

    ``code`` is that of JSON-RPC, ``status`` that of HTTP, where there was one.
    """

    def __init__(self, message: str | None = None, *, code: int | None = None, status: int | None = None) -> None:
        self.code = code
        self.status = status
        super().__init__(message)


class A2AResponseError(A2AServerError):
    """The agent returned a response that is not valid A2A."""
