"""Policies for an unavailable storage.

``strict`` raises `StateNotSaved` for saves. ``resilient`` keeps a failed save in a spool and replays it, in order, when
the storage is back. Loads raise `StateNotLoaded` under both, since a failed load must not look like missing data. Both
log ``statestore_save_failed`` and ``statestore_load_failed``; both reject invalid arguments.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

logger = logging.getLogger("keelbolt.state")

PolicyName = Literal["strict", "resilient"]


@dataclass(slots=True)
class Counters:
    """Counts since the store was created."""

    saved: int = 0
    save_failures: int = 0
    spooled: int = 0
    replayed: int = 0
    lost: int = 0
    loaded: int = 0
    load_failures: int = 0


def tell_save_failed(
    method: str, trace_id: str | None, error: BaseException, *, key: str | None = None, kept: bool = False
) -> None:
    """Log a failed save; ``kept``: it waits in the spool."""
    _tell(
        logging.WARNING if kept else logging.ERROR, "statestore_save_failed", method, trace_id or key, trace_id, error
    )


def tell_load_failed(method: str, trace_id: str | None, error: BaseException, *, key: str | None = None) -> None:
    """Log a failed load."""
    _tell(logging.ERROR, "statestore_load_failed", method, trace_id or key, trace_id, error)


def _tell(level: int, event: str, method: str, key: str | None, trace_id: str | None, error: BaseException) -> None:
    cause = repr(error)
    fields = {"event": event, "method": method, "trace_id": trace_id, "key": key, "exception": cause}
    logger.log(level, "%s: %s(%s): %s", event, method, "" if key is None else repr(key), cause, extra=fields)
