"""Files that only their owner can read, regardless of the umask. Existing files keep their permissions."""

from __future__ import annotations

import contextlib
import os

MODE = 0o600
FOLDER_MODE = 0o700


def create_private(path: str | os.PathLike[str]) -> int:
    """Create a new file and return its descriptor, open for reading and writing. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)


def ensure_private(path: str | os.PathLike[str]) -> None:
    """Create the file if it is missing. Errors are left to the program that opens the file next."""
    with contextlib.suppress(OSError):
        os.close(create_private(os.path.realpath(path)))


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make the names of new and renamed files in this folder survive a power loss."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def ensure_private_folder(path: str | os.PathLike[str]) -> None:
    """Create the folder if it is missing; missing parents get the umask's permissions. Raises OSError."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)  # noqa: PTH100, PTH103, PTH120
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, FOLDER_MODE)  # noqa: PTH102
    if not os.path.isdir(path):  # noqa: PTH112
        raise NotADirectoryError(20, "Not a directory")
