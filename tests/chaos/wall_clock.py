"""A wall clock that jumps: `time.time` and `time.time_ns` of all processes, moved by a number in a shared file.

libfaketime can't be used: it breaks Python's `time.sleep`. `datetime.now` is not changed.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

_SECONDS = struct.Struct("d")


def create(path: Path) -> None:
    """Create a correct clock."""
    path.write_bytes(_SECONDS.pack(0.0))


def jump(path: Path, seconds: float) -> None:
    """Set the offset of the wall clock from now on."""
    with path.open("r+b", buffering=0) as file:
        file.write(_SECONDS.pack(seconds))


def follow(path: str) -> None:
    """Make this process and its forks use the clock of this file. Call it before other imports."""
    file = os.open(path, os.O_RDONLY)
    shared = mmap.mmap(file, _SECONDS.size, prot=mmap.PROT_READ)
    os.close(file)
    real, real_ns = time.time, time.time_ns

    def wrong() -> float:
        return float(_SECONDS.unpack(shared)[0])

    time.time = lambda: real() + wrong()
    time.time_ns = lambda: real_ns() + int(wrong() * 1e9)
