"""A file system in memory of a given size, which a test fills."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEGABYTE = 1024 * 1024
TRIES = 50


class CannotMount(Exception):
    """This process may not mount a file system."""


class SmallDisk:
    """A mounted file system in memory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._filler = place / "filler"

    def fill(self, leave: int = 0) -> None:
        """Use all free space except this many bytes."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (MEGABYTE, 4096, 1):
                try:
                    while self.free() - size >= leave:
                        file.write(bytes(size))
                except OSError:
                    continue

    def empty(self) -> None:
        """Free the space."""
        self._filler.unlink()

    @contextmanager
    def full(self) -> Iterator[None]:
        """Keep the disk full within this block."""
        state = os.statvfs(self.place)
        size = state.f_blocks * state.f_frsize
        self._shrink()
        try:
            yield
        finally:
            _mount("-o", f"remount,size={size}", str(self.place))

    def _shrink(self) -> None:
        """Shrink the disk to the size of its files, while programs write to it."""
        for left in range(TRIES, -1, -1):
            state = os.statvfs(self.place)
            used = (state.f_blocks - state.f_bfree) * state.f_frsize
            try:
                _mount("-o", f"remount,size={used + (TRIES - left) * state.f_frsize}", str(self.place))
            except CannotMount:  # the files have grown
                if not left:
                    raise
            else:
                return

    def free(self) -> int:
        """Return the number of free bytes."""
        state = os.statvfs(self.place)
        return state.f_bavail * state.f_frsize


@contextmanager
def mounted(place: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount a disk of this size at ``place``. Raise CannotMount if that is not allowed."""
    if os.geteuid() != 0:
        raise CannotMount("only root may mount the small disk that is filled")
    place.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place))
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _mount(*options: str) -> None:
    mount = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mount.returncode != 0:
        raise CannotMount(f"a tmpfs can't be mounted here: {mount.stderr.strip()}")
