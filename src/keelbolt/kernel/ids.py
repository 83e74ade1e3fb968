"""Ids that sort by time (UUIDv7): with random keys, each insert would dirty another page of the index."""

from __future__ import annotations

import os
import threading
import time

_BLOCK = 128  # ids per draw of entropy
_lock = threading.Lock()
_tails: list[str] = []  # random parts of future ids
_last = 0


def new_id() -> str:
    """Return a new UUIDv7. Within this process, each id sorts after the one before."""
    global _last  # noqa: PLW0603
    with _lock:
        if not _tails:
            _tails.extend(_draw())
        tail = _tails.pop()
        # Milliseconds with 12 more bits, so that ids of the same millisecond are ordered too.
        stamp = time.time_ns() * 4096 // 1_000_000
        if stamp <= _last:
            stamp = _last + 1
        _last = stamp
    text = f"{stamp:015x}"
    return f"{text[:8]}-{text[8:12]}-7{text[12:]}{tail}"


def _draw() -> list[str]:
    """Return the last 20 characters of ids: the variant, and 62 random bits."""
    text = os.urandom(8 * _BLOCK).hex()
    ends = [text[at : at + 16] for at in range(0, len(text), 16)]
    return [f"-{_VARIANT[end[0]]}{end[1:4]}-{end[4:]}" for end in ends]


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def _forget() -> None:
    """In a forked child: discard the parent's random bytes, and a lock that a thread of the parent may hold."""
    global _lock  # noqa: PLW0603
    _tails.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
