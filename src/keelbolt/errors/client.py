"""What a client meets when it calls an agent."""

from __future__ import annotations

from keelbolt.errors.base import KeelboltError


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
