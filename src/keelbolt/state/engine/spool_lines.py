"""Encodes a write as a line in a spool file."""

from __future__ import annotations

import base64
import json
from typing import Any

from msgspec.structs import astuple

from keelbolt.errors import InvalidState
from keelbolt.kernel import Absent, Append, Complete, Delete, Draft, Drop, Fence, FieldIn, Operation, Put, Version
from keelbolt.state.engine.writes import StateWrite


def dump_write(write: StateWrite) -> bytes:
    """Return the write as one line of JSON."""
    return json.dumps(
        {
            "partition": write.partition,
            "method": write.method,
            "trace_id": write.trace_id,
            "spooled_at": write.spooled_at,
            "operations": [_dump(operation) for operation in (*write.guards, *write.certain)],
        }
    ).encode()


def load_write(line: bytes) -> StateWrite:
    """Return the write of such a line."""
    stored = json.loads(line)
    operations = tuple(_load(operation) for operation in stored["operations"])
    return StateWrite(
        stored["partition"],
        stored["method"],
        operations,
        len(line),
        trace_id=stored["trace_id"],
        spooled_at=stored["spooled_at"],
    )


def _dump(operation: Operation) -> dict[str, Any]:
    match operation:
        case Put(collection, key, body, fields, expires_in):
            return {"put": [collection, key, _text(body), dict(fields), expires_in]}
        case Append(log, stream, entries):
            return {"append": [log, stream, [[entry.kind, _text(entry.data), entry.dedupe] for entry in entries]]}
        case FieldIn(collection, key, field, values):
            return {"field_in": [collection, key, field, list(values)]}
        case Delete(collection, key, None):
            return {"delete": [collection, key]}
        case Absent() | Version() | Fence() | Complete() | Drop():
            return {type(operation).__name__: list(astuple(operation))}
        case _:
            raise InvalidState(f"a {type(operation).__name__} can't be stored in a spool")


def _load(stored: dict[str, Any]) -> Operation:
    if "put" in stored:
        collection, key, body, fields, expires_in = stored["put"]
        return Put(collection, key, base64.b64decode(body), fields, expires_in)
    if "field_in" in stored:
        collection, key, field, values = stored["field_in"]
        return FieldIn(collection, key, field, tuple(values))
    if "delete" in stored:
        return Delete(*stored["delete"])
    for kind in (Absent, Version, Fence, Complete, Drop):
        if kind.__name__ in stored:
            return kind(*stored[kind.__name__])
    log, stream, entries = stored["append"]
    return Append(log, stream, tuple(Draft(kind, base64.b64decode(data), dedupe) for kind, data, dedupe in entries))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
