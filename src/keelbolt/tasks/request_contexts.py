"""Request contexts: values of a request that its worker sees, only in the memory of this process.

They are kept from the send until the turn starts here. They are never stored, so a turn that another process starts has
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keelbolt.kernel import Scope

MAX_WAITING = 1000  # requests whose turn has not started here; the oldest is dropped first

Key = tuple[Scope, str, str]  # scope of the owner, task id, message id


class RequestContexts:
    """The request contexts of turns that have not started yet."""

    def __init__(self) -> None:
        self._waiting: dict[Key, dict[str, Any]] = {}

    def put(self, key: Key, values: Mapping[str, Any]) -> None:
        """Keep the values until the turn of this message starts here."""
        self._waiting.pop(key, None)
        self._waiting[key] = dict(values)
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]

    def take(self, key: Key) -> dict[str, Any]:
        """Return and remove the values of this message's request; empty if this process has none."""
        return self._waiting.pop(key, None) or {}
