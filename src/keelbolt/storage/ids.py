"""Ids that sort by time (UUIDv7): random keys would dirty a page of the index each."""

from __future__ import annotations

import os
import threading
import time

_BLOCK = 128  # ids per draw of entropy
_lock = threading.Lock()
_entropy = b""
_last = 0


def new_id() -> str:
    """A new UUIDv7; within this process each one sorts after the one before."""
    global _entropy, _last  # noqa: PLW0603
    with _lock:
        if len(_entropy) < 8:
            _entropy = os.urandom(8 * _BLOCK)
        random, _entropy = _entropy[:8], _entropy[8:]
        # Milliseconds and 12 bits below them: two ids of one moment still differ in order.
        _last = max(_last + 1, time.time_ns() * 4096 // 1_000_000)
        stamp = _last
    value = (stamp >> 12) << 80 | 7 << 76 | (stamp & 0xFFF) << 64 | 2 << 62 | int.from_bytes(random) >> 2
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _forget() -> None:
    """A child must not repeat its parent's randomness, nor wait for a lock that a thread of the parent held."""
    global _entropy, _lock  # noqa: PLW0603
    _entropy = b""
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
