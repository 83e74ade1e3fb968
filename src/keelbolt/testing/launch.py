"""Shared code for temporary servers: a directory, a port, and a keeper process that always ends them."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from keelbolt.errors import KeelboltError

START_SECONDS = 60.0
MAX_SOCKET_PATH = 70  # of the about 107 characters that a unix socket's path may have; the server's file name follows


class ServerFailed(KeelboltError):
    """The server for the tests could not be started or stopped."""


class NoServer(KeelboltError):
    """There is no server for the tests on this machine."""


def user_for_servers() -> pwd.struct_passwd | None:
    """Return the user for servers that refuse to run as root: ``nobody`` if this process is root, else None."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def free_port() -> int:
    """Return a free port. Another process may take it before the server does, so callers retry the start."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def make_home(name: str, owner: pwd.struct_passwd | None) -> Path:
    """Create a temporary directory that its owner can access, with a path short enough for a unix socket."""
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108 - mkdtemp creates a unique name in it
        if len(parent) > MAX_SOCKET_PATH - 30 or not _reachable(Path(parent), owner):
            continue
        home = Path(tempfile.mkdtemp(prefix=f"keelbolt-{name}-", dir=parent))
        if owner is not None:
            os.chown(home, owner.pw_uid, owner.pw_gid)
        return home
    raise ServerFailed("no temporary directory is short enough and open to the server's user; set TMPDIR")


def _reachable(directory: Path, owner: pwd.struct_passwd | None) -> bool:
    return owner is None or all(place.stat().st_mode & 0o001 for place in (directory, *directory.parents))


class Keeper:
    """A shell process that ends the server and removes its directory, on request or when this process ends.

    It detects the end of this process by the end of a pipe, so a killed test leaves nothing behind.
    """

    _SCRIPT = """
        trap '' INT TERM HUP
        pid=
        while read -r line; do pid=$line; done
        if [ -n "$pid" ]; then
            kill -CONT "$pid"; kill -"$1" "$pid"
            n=0; while [ $n -lt 50 ] && kill -0 "$pid"; do sleep 0.1; n=$((n + 1)); done
            kill -KILL "$pid"
        fi 2>/dev/null
        rm -rf -- "$2" || { sleep 1; rm -rf -- "$2"; }
    """

    def __init__(self, home: Path, end_with: str) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", self._SCRIPT, "keelbolt-keeper", end_with, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def watch(self, pid: int | None) -> None:
        """Set the server's process id; None if no server is running."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{pid or ''}\n".encode())
        self._process.stdin.flush()

    def finish(self, server: subprocess.Popen[bytes] | None) -> None:
        """End the server and remove its directory, now."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if server is not None:
            server.wait()  # reap the child, or the keeper would still see it running
        self._process.wait()


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server is ready. Raise ServerFailed with the end of its log if it exits or takes too long."""
    end = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            raise ServerFailed(f"the server did not start:\n{tail_of(log)}")
        time.sleep(0.02)


def tail_of(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def runs(program: Path, user: pwd.struct_passwd | None) -> bool:
    """Return whether this user can start this program."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, check=False, cwd="/", **as_user(user))
    except OSError:
        return False
    return done.returncode == 0


def as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Return the subprocess arguments that start a program as this user."""
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def on_path(*names: str) -> Iterator[Path]:
    for name in names:
        if found := shutil.which(name):
            yield Path(found)
