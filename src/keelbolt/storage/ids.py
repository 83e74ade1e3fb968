"""Ids that sort by time (UUIDv7): random keys would dirty a page of the index each."""

from __future__ import annotations

import os
import struct
import threading
import time

_BLOCK = 128  # ids per draw of entropy
_unpack = struct.Struct(f">{_BLOCK}Q").unpack
_lock = threading.Lock()
_entropy: list[int] = []
_last = 0


def new_id() -> str:
    """A new UUIDv7; within this process each one sorts after the one before."""
    global _last  # noqa: PLW0603
    with _lock:
        if not _entropy:
            _entropy.extend(_unpack(os.urandom(8 * _BLOCK)))
        random = _entropy.pop()
        # Milliseconds and 12 bits below them: two ids of one moment still differ in order.
        _last = stamp = max(_last + 1, time.time_ns() * 4096 // 1_000_000)
    text = f"{stamp:015x}{random:016x}"
    return f"{text[:8]}-{text[8:12]}-7{text[12:15]}-{_VARIANT[text[15]]}{text[16:19]}-{text[19:]}"


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def _forget() -> None:
    """A child must not repeat its parent's randomness, nor wait for a lock that a thread of the parent held."""
    global _lock  # noqa: PLW0603
    _entropy.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
