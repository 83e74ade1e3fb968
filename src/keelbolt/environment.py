"""The names of all ``KEELBOLT_*`` variables, and the check that finds misspelled ones at start."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from keelbolt.errors import InvalidValue

PREFIX = "KEELBOLT_"
TRUE = ("1", "true", "yes", "on")
FALSE = ("0", "false", "no", "off", "")
ALIKE = 0.8  # minimum similarity to a known name to count as a misspelling

KNOWN = frozenset(
    """
    AGENT_DESCRIPTION AGENT_NAME AGENT_VERSION ALLOWED_HOSTS ALLOW_ANONYMOUS BLOCKING_SECONDS BODY_BYTES BODY_SECONDS
    CANCEL_ON_DISCONNECT CANCEL_SECONDS CANCEL_WORDS CONCURRENCY CONNECTIONS CONNECTIONS_EACH CORS_ORIGINS DOUBLE_TEXT
    DRAIN_SECONDS EXECUTION_TIMEOUT EXPLORER EXPLORER_AGENTS EXPLORER_PREFIX EXTENSIONS_DIR FAILED_LOGINS GENERATION
    GRPC_URL HEADER_BYTES HEADER_SECONDS HEARTBEAT_SECONDS HEARTBEAT_STREAM_SECONDS HOST JWT_AUDIENCE JWT_ISSUER JWT_KEY
    JWT_TENANT_CLAIM LEASE_SECONDS LOG_FORMAT LOG_LEVEL LONG_POLL_SECONDS MAX_ATTEMPTS METRICS NO_PROGRESS_SECONDS
    OPERATORS OPERATOR_ROLES PORT PROTOCOLS PUBLIC_ERRORS PUSH_NOTIFICATIONS REPEATED_SEND REQUESTS_PER_SECOND
    REQUEST_BURST RETAIN SECRET_KEY SERVER SLEEP_HOLD_SECONDS STATE_PAUSE_SECONDS STATE_POLICY STATE_RETAIN STATE_SPOOL
    STATE_SWEEP_EVERY STATE_TENANT STATE_TIMEOUT_SECONDS STATE_URL STATE_WRITE_BEHIND STORAGE STREAMS STREAMS_EACH
    SYSTEM_ROLES TASK_STORE_MAX TASK_STORE_TTL TOKEN TRACING TRUST_PROXY URL WEBHOOK_GIVE_UP_SECONDS WEBHOOK_HOSTS
    WEBHOOK_LOOPBACK WEBHOOK_SECRET WRITE_SECONDS
    """.split()  # noqa: SIM905 - a list would take a line each
)
"""Every variable that Keelbolt reads, without its prefix."""


def check_names(environment: Mapping[str, str]) -> None:
    """Raise InvalidValue for a variable whose name looks like a misspelling of one that Keelbolt reads.

    Other unknown names pass: Kubernetes sets KEELBOLT_SERVICE_HOST for a service of this name.
    """
    for name in environment:
        word = name.removeprefix(PREFIX)
        if name == word or word in KNOWN:
            continue
        if close := get_close_matches(word, sorted(KNOWN), n=1, cutoff=ALIKE):
            raise InvalidValue(f"{name} is no setting of Keelbolt; did you mean {PREFIX}{close[0]}?")


def read_flag(name: str, text: str) -> bool:
    """Return the value of a boolean variable. Raise InvalidValue if it is neither true nor false."""
    if text.lower() in TRUE + FALSE:
        return text.lower() in TRUE
    raise InvalidValue(f"{name} must be true or false, not {text!r}")
