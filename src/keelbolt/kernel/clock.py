"""Clocks. They are passed in, so that tests can control time."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import cache
from pathlib import Path


class Clock:
    """The clocks of this machine.

    ``wall`` is for display and may jump. ``steady`` never jumps, continues while the machine sleeps and is the same for
    all processes, but starts again at every boot; ``boot`` identifies that boot.
    """

    def wall(self) -> int:
        """Return microseconds since 1970."""
        return time.time_ns() // 1000

    def steady(self) -> int:
        """Return microseconds since a fixed moment of this boot."""
        return time.clock_gettime_ns(_STEADY) // 1000

    def boot(self) -> str:
        return _boot_id()


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@cache
def _boot_id() -> str:
    linux = Path("/proc/sys/kernel/random/boot_id")
    if linux.exists():
        return linux.read_text().strip()
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return "unknown"
