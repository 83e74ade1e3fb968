"""The fields of a log line about a task, which become members of the line in JSON logs."""

from __future__ import annotations

from typing import Any

from keelbolt.kernel import Claim
from keelbolt.observability.tracing import carried
from keelbolt.tasks.record import TaskRecord


def log_fields(claim: Claim, record: TaskRecord | None = None) -> dict[str, Any]:
    """Return the task and attempt, and with a record the context and trace id, for ``extra=`` of a log call."""
    found: dict[str, Any] = {"task": claim.key, "attempt": claim.attempt}
    if record is not None:
        found["context"] = record.context_id
        version, *ids = (carried(record.turn.request) or {}).get("traceparent", "").split("-")
        if version and len(ids) == 3:
            found["trace"] = ids[0]
    return found
