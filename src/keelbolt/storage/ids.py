"""Ids that sort by time (UUIDv7): random keys would dirty a page of the index each."""

from __future__ import annotations

import os
import threading
import time

_BLOCK = 128  # ids per draw of entropy
_lock = threading.Lock()
_tails: list[str] = []  # the random ends of ids to come
_last = 0


def new_id() -> str:
    """A new UUIDv7; within this process each one sorts after the one before."""
    global _last  # noqa: PLW0603
    with _lock:
        if not _tails:
            _tails.extend(_draw())
        tail = _tails.pop()
        # Milliseconds and 12 bits below them: two ids of one moment still differ in order.
        stamp = time.time_ns() * 4096 // 1_000_000
        if stamp <= _last:
            stamp = _last + 1
        _last = stamp
    text = f"{stamp:015x}"
    return f"{text[:8]}-{text[8:12]}-7{text[12:]}{tail}"


def _draw() -> list[str]:
    """The last 20 characters of ids: the variant, and 62 random bits."""
    text = os.urandom(8 * _BLOCK).hex()
    ends = [text[at : at + 16] for at in range(0, len(text), 16)]
    return [f"-{_VARIANT[end[0]]}{end[1:4]}-{end[4:]}" for end in ends]


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def _forget() -> None:
    """A child must not repeat its parent's randomness, nor wait for a lock that a thread of the parent held."""
    global _lock  # noqa: PLW0603
    _tails.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
