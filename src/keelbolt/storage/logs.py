"""Logs: (log, stream) → entries with a dense seq 1..n, and a floor below which they were trimmed."""

from __future__ import annotations

from msgspec import Struct

PAGE_BYTES = 1024 * 1024  # a page of a log ends with the entry that reaches this


class Draft(Struct, frozen=True, gc=False):
    """An entry to append. A repeat of ``dedupe`` in the same stream writes nothing and answers the first one's seq."""

    kind: str
    data: bytes
    dedupe: str | None = None


class Entry(Struct, frozen=True, gc=False):
    """A stored entry; ``at`` is when it was committed (microseconds since 1970, for people: order is by seq)."""

    seq: int
    kind: str
    data: bytes
    at: int


class LogState(Struct, frozen=True, gc=False):
    """``head`` is the last seq (0: nothing yet), ``floor`` the last trimmed one (0: nothing trimmed)."""

    head: int
    floor: int


class LogPage(Struct, frozen=True, gc=False):
    """Entries next to each other, in the order asked for, with the log's head and floor at the same moment."""

    entries: tuple[Entry, ...]
    head: int
    floor: int


# ---------------------------------------------------------------------------------------------------------- checks


class Head(Struct, frozen=True, gc=False):
    """Check: the stream's last seq is exactly this (0: nothing was appended)."""

    log: str
    stream: str
    seq: int


# ---------------------------------------------------------------------------------------------------------- writes


class Append(Struct, frozen=True, gc=False):
    """Append these entries, next to each other and in this order."""

    log: str
    stream: str
    entries: tuple[Draft, ...]


class Start(Struct, frozen=True, gc=False):
    """Begin a stream behind this seq, as if the entries up to it were trimmed; refused when it was written already."""

    log: str
    stream: str
    floor: int


class Trim(Struct, frozen=True, gc=False):
    """Forget the entries up to and including ``through`` (at most the head); the floor keeps the cut visible.

    Their dedupe keys are forgotten with them.
    """

    log: str
    stream: str
    through: int


class Drop(Struct, frozen=True, gc=False):
    """Forget the stream altogether: afterwards it is like a stream that was never written."""

    log: str
    stream: str
