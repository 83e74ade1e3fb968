"""Processes that tests start, exchange lines with, stop and kill."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]


class Ended(AssertionError):
    """The process closed its output."""

    def __init__(self, returncode: int) -> None:
        super().__init__(f"the child process ended with {returncode}")
        self.returncode = returncode


class Child:
    """A Python program of this folder, in its own process."""

    def __init__(self, process: subprocess.Popen[bytes], *, own_group: bool) -> None:
        self._process = process
        self._own_group = own_group
        self._read = b""
        self.ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def line(self, seconds: float = 60.0) -> str:
        """Return the next line that it prints. Fail if it ends or prints nothing in time."""
        assert self._process.stdout is not None
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._read:
                ready = selector.select(max(until - time.monotonic(), 0))
                data = os.read(self._process.stdout.fileno(), 65536) if ready else b""
                if not ready:
                    raise AssertionError(f"the child process was silent for {seconds} s after {self._read!r}")
                if not data:
                    raise Ended(self._process.wait())
                self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def send(self, which: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(which)

    def wait(self, seconds: float = 60.0) -> int:
        return self._process.wait(seconds)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send(signal.SIGKILL)
        self.wait()

    def stopped(self, seconds: float = 30.0) -> None:
        """Wait until it is stopped by SIGSTOP."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                return
            time.sleep(0.01)
        raise AssertionError("the child process was not stopped")

    def close(self) -> None:
        if self._own_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Children:
    """All processes of one test; those still running at its end are killed."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def start(
        self,
        program: str,
        *arguments: object,
        under: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        quiet: bool = False,
        own_group: bool = False,
    ) -> Child:
        """Run ``tests/faults/<program>.py``, perhaps ``under`` another command.

        ``quiet`` hides its traceback. A process in its ``own_group`` is killed together with its children.
        """
        command = [*under, sys.executable, "-m", f"tests.faults.{program}", *map(str, arguments)]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            start_new_session=own_group,
        )
        child = Child(process, own_group=own_group)
        self._children.append(child)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for child in self._children:
            child.close()
