"""Errors on the wire: described once, logged if they are internal, encoded by the binding."""

from __future__ import annotations

import logging

from keelbolt.errors import BusyError
from keelbolt.protocol.errors import INTERNAL, WireFailure, describe
from keelbolt.server.http import Header

logger = logging.getLogger("keelbolt.server")


def explain(error: Exception) -> WireFailure:
    """Return the failure for the caller; log the details that the caller must not see."""
    failure = describe(error)
    if failure.row is INTERNAL:
        logger.error("a request failed", exc_info=error)
    elif failure.row.http >= 500:
        logger.warning("a request can't be served now: %s", error)
    return failure


def failure_headers(error: Exception) -> tuple[Header, ...]:
    """Return the headers of an error response: the challenge, or when to retry."""
    challenge = getattr(error, "challenge", None)
    if challenge:
        return ((b"www-authenticate", challenge.encode("latin-1", "replace")),)
    if isinstance(error, BusyError):
        return ((b"retry-after", b"%d" % error.retry_after),)
    if getattr(error, "retryable", False):
        return ((b"retry-after", b"5"),)
    return ()
