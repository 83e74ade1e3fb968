"""Logs: (log, stream) → entries with a dense seq 1..n, and a floor below which they were trimmed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry to append. A repeat of ``dedupe`` in the same stream writes nothing and answers the first one's seq."""

    kind: str
    data: bytes
    dedupe: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored entry; ``at`` is when it was committed (microseconds since 1970, for people: order is by seq)."""

    seq: int
    kind: str
    data: bytes
    at: int


@dataclass(frozen=True, slots=True)
class LogState:
    """``head`` is the last seq (0: nothing yet), ``floor`` the last trimmed one (0: nothing trimmed)."""

    head: int
    floor: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries next to each other, in the order asked for, with the log's head and floor at the same moment."""

    entries: tuple[Entry, ...]
    head: int
    floor: int


# ---------------------------------------------------------------------------------------------------------- checks


@dataclass(frozen=True, slots=True)
class Head:
    """Check: the stream's last seq is exactly this (0: nothing was appended)."""

    log: str
    stream: str
    seq: int


# ---------------------------------------------------------------------------------------------------------- writes


@dataclass(frozen=True, slots=True)
class Append:
    """Append these entries, next to each other and in this order."""

    log: str
    stream: str
    entries: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Trim:
    """Forget the entries up to and including ``through`` (at most the head); the floor keeps the cut visible.

    Their dedupe keys are forgotten with them.
    """

    log: str
    stream: str
    through: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget the stream altogether: afterwards it is like a stream that was never written."""

    log: str
    stream: str
