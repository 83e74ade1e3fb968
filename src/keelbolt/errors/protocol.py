"""What is wrong with a request, before anything is done for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keelbolt.errors.base import KeelboltError


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
