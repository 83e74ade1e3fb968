"""Logs: (log, stream) → entries with a dense seq 1..n, and a floor below which they were trimmed."""

from __future__ import annotations

from msgspec import Struct

PAGE_BYTES = 1024 * 1024  # a page of a log ends with the entry that reaches this size


class Draft(Struct, frozen=True, gc=False):
    """An entry to append. If the stream has its ``dedupe`` key, nothing is written and the first seq is returned."""

    kind: str
    data: bytes
    dedupe: str | None = None


class Entry(Struct, frozen=True, gc=False):
    """A stored entry. ``at`` is its commit time (microseconds since 1970), for display only: order is by seq."""

    seq: int
    kind: str
    data: bytes
    at: int


class LogState(Struct, frozen=True, gc=False):
    """``head`` is the last seq (0: no entries yet), ``floor`` the last trimmed seq (0: none trimmed)."""

    head: int
    floor: int


class LogPage(Struct, frozen=True, gc=False):
    """Adjacent entries in the requested order, with the stream's head and floor at the same moment."""

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
    """Append these entries, adjacent and in this order."""

    log: str
    stream: str
    entries: tuple[Draft, ...]


class Start(Struct, frozen=True, gc=False):
    """Start a stream after this seq, as if the entries up to it were trimmed; refused if it was written before."""

    log: str
    stream: str
    floor: int


class Trim(Struct, frozen=True, gc=False):
    """Remove the entries up to and including ``through`` (at most the head), and raise the floor to it.

    Their dedupe keys are removed too.
    """

    log: str
    stream: str
    through: int


class Drop(Struct, frozen=True, gc=False):
    """Remove the whole stream. Afterwards it is the same as a stream that was never written."""

    log: str
    stream: str
