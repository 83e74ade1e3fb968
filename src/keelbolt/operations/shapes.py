"""Helpers of the handlers for kept data: the requested page, and the encoding of the response."""

from __future__ import annotations

import json
from typing import Any

from keelbolt.errors import MethodNotFoundError
from keelbolt.operations.call import OpsCall


def page_asked(call: OpsCall) -> dict[str, Any]:
    """Return the requested page of a list, as arguments of the inspections."""
    limit = call.number("pageSize", 50, low=1, high=100)
    return {"limit": limit, "cursor": call.query.get("pageToken") or None}


def entries_asked(call: OpsCall) -> dict[str, Any]:
    """Return the requested part of a log, as arguments of the inspections."""
    after = call.number("after", 0, low=0, high=2**53) if "after" in call.query else None
    return {"after": after, "limit": call.number("limit", 100, low=1, high=500)}


def json_found(found: Any, kind: str) -> bytes:
    """Return the response. Raises MethodNotFoundError for None."""
    if found is None:
        raise MethodNotFoundError(f"there is no such {kind}")
    return json_of(found)


def json_of(value: Any) -> bytes:
    """Return the JSON of any text that a store can hold, including lone surrogates."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
