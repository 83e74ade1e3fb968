"""What happens when the storage can't be used: strict callers are told, resilient ones go on.

``strict`` raises `StateNotSaved` and `StateNotLoaded`. ``resilient`` never raises for the storage's sake: saves that
fail go to a spool and are replayed in order when the storage is back, loads answer as if there were nothing. Both log
``statestore_save_failed`` and ``statestore_load_failed``. Under both, a call that is wrong in itself is refused.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

logger = logging.getLogger("keelbolt.state")

PolicyName = Literal["strict", "resilient"]


@dataclass(slots=True)
class Counters:
    """What has happened since the store was made."""

    saved: int = 0
    save_failures: int = 0
    spooled: int = 0
    replayed: int = 0
    lost: int = 0
    loaded: int = 0
    load_failures: int = 0


def tell_save_failed(method: str, trace_id: str | None, error: BaseException, *, kept: bool = False) -> None:
    """Log a save that failed; ``kept``: it waits in the spool."""
    level = logging.WARNING if kept else logging.ERROR
    logger.log(level, "statestore_save_failed", extra=_fields("statestore_save_failed", method, trace_id, error))


def tell_load_failed(method: str, trace_id: str | None, error: BaseException) -> None:
    """Log a load that failed."""
    logger.error("statestore_load_failed", extra=_fields("statestore_load_failed", method, trace_id, error))


def _fields(event: str, method: str, trace_id: str | None, error: BaseException) -> dict[str, str | None]:
    return {"event": event, "method": method, "trace_id": trace_id, "exception": repr(error)}
