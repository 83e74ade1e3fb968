"""Runs a job of a law in a new process: `start` in the process of the suite, `main` in the new one.

The first input line of the process is a pickled (place, options of its `open`, job, arguments) in base64; each further
line lets a waiting job continue. The job replies with lines of JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from keelbolt.conformance.expect import broken
from keelbolt.conformance.suite import ConformancePlace
from keelbolt.errors import InvalidValue

CHILD_SECONDS = 45.0
LINE_BYTES = 16 * 1024 * 1024

Job = Callable[..., Awaitable[None]]


# ------------------------------------------------------------------------------------------------ in the new process


def say(reply: object) -> None:
    """Send one reply."""
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


async def go() -> None:
    """Report that this process is ready, and wait for `Child.go`."""
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)


async def _run(place: ConformancePlace[Any], opened: dict[str, Any], job: Job, arguments: dict[str, Any]) -> None:
    async with asyncio.timeout(CHILD_SECONDS), place.open(**opened) as case:
        await job(case, **arguments)


def main() -> None:
    asyncio.run(_run(*pickle.loads(base64.b64decode(sys.stdin.readline()))))


# ------------------------------------------------------------------------------------------ in the suite's process


class Child:
    """A running process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def answer(self) -> Any:
        """The next reply of the job."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            errors = (await self._process.stderr.read()).decode()
            broken(f"a process ended without a reply (code {await self._process.wait()}): …{errors[-1500:]}")
        return json.loads(line)

    async def ready(self) -> None:
        """Wait until the job is ready."""
        if (answer := await self.answer()) != "ready":
            broken(f"a process replied {answer!r} before it was ready")

    def go(self) -> None:
        """Let the waiting job continue."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    def stop(self) -> None:
        """Suspend the process with SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def start(
    place: ConformancePlace[Any], job: Job, *, opened: dict[str, Any] | None = None, **arguments: object
) -> AsyncIterator[Child]:
    """Start a process that opens the place and runs the job; it is killed at the end of the block."""
    # Only this process discards the data; the function for it need not be importable.
    place = replace(place, subject=replace(place.subject, discard=None))
    try:
        pickled = pickle.dumps((place, opened or {}, job, arguments))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidValue(
            f"{place.subject.name} is checked with several processes, so its make must be a function of a module: "
            f"{error}"
        ) from error
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "keelbolt.conformance.child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert process.stdin is not None
        process.stdin.write(base64.b64encode(pickled) + b"\n")
        yield Child(process)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.communicate()


@asynccontextmanager
async def together(place: ConformancePlace[Any], job: Job, *arguments: dict[str, Any]) -> AsyncIterator[list[Child]]:
    """Start one process for each of the arguments; their jobs continue at the same time."""
    async with AsyncExitStack() as stack:
        children = [await stack.enter_async_context(start(place, job, **each)) for each in arguments]
        for child in children:
            await child.ready()
        for child in children:
            child.go()
        yield children


if __name__ == "__main__":
    main()
