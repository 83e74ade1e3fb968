"""Times: accepts ISO 8601 text, milliseconds since 1970 or a datetime, and stores an aware datetime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

Moment = datetime | str | int | float

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(value: object) -> datetime:
    """Return the time as an aware datetime. Raise ValueError with the reason if it is invalid."""
    if isinstance(value, datetime):
        found = value
    elif isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value[:40]!r} is not a time; write it as 2026-01-31T12:00:00Z") from None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _EPOCH + timedelta(milliseconds=value)
        except (OverflowError, ValueError):
            raise ValueError(f"{value} milliseconds since 1970 is not a time that can be kept") from None
    else:
        raise ValueError(f"a time is a datetime, ISO 8601 text or milliseconds since 1970, not {type(value).__name__}")  # noqa: TRY004
    if found.utcoffset() is None:
        raise ValueError(f"{found.isoformat()} has no time zone; use datetime.now(UTC), or add Z or an offset")
    return found
