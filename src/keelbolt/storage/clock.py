"""Time, passed in, so that tests own it."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import cache
from pathlib import Path


class Clock:
    """The clocks of this machine.

    ``wall`` is for people and may jump. ``steady`` never jumps, goes on while the machine sleeps and is the same for
    all its processes, but starts anew at every boot; ``boot`` names the boot it belongs to.
    """

    def wall(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def steady(self) -> int:
        """Microseconds since some moment of this boot."""
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
