"""The query and the result page of listing tasks."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, Field

from keelbolt.errors import InvalidTaskRequest
from keelbolt.protocol.types import Task, TaskState

MAX_PAGE_SIZE = 100


class ListTasksQuery(BaseModel):
    """Filters, and where to go on. ``status_timestamp_after`` (ISO 8601) includes the moment itself."""

    context_id: str | None = None
    status: TaskState | None = None
    page_size: int = Field(default=50, ge=1, le=MAX_PAGE_SIZE)
    page_token: str | None = None
    history_length: int | None = Field(default=None, ge=0)
    status_timestamp_after: str | None = None
    include_artifacts: bool = False


class ListTasksResult(BaseModel):
    """A page of tasks, newest status first. ``next_page_token`` is empty on the last one.

    ``total_size`` counts all tasks that match, on every page.
    """

    tasks: list[Task] = Field(default_factory=list)
    next_page_token: str = ""
    page_size: int = 50
    total_size: int = 0


def moment(text: str) -> int:
    """Return a timestamp as microseconds since 1970; raise InvalidTaskRequest. Without an offset it is UTC."""
    try:
        read = datetime.fromisoformat(text)
        if read.tzinfo is None:
            read = read.replace(tzinfo=UTC)
        since = read - datetime(1970, 1, 1, tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise InvalidTaskRequest(f"{text!r} is not a timestamp; write it as 2026-01-31T12:00:00.000Z") from None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
