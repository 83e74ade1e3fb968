"""A process of its own with a store at a place; `start` starts it, `main` is what it runs.

Its first input line is a pickled (make, types, name of the place, directory, job, arguments) in base64. It answers with
lines of JSON, as the processes of the engines' suite do.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import pickle
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from keelbolt.conformance.child import CHILD_SECONDS, LINE_BYTES, Child, go, say
from keelbolt.conformance.state_store.law import StateCase, StatePlace, StateStoreSubject
from keelbolt.errors import InvalidValue

Job = Callable[..., Awaitable[None]]


async def save_some(case: StateCase, *, count: int) -> None:
    """Save so many things of each kind, answer when all were awaited, and wait to be killed."""
    await go()
    for number in range(count):
        if case.can("memory_state"):
            await case.store.save_memory_state(f"key-{number}", {"number": number})
        if case.can("planner_events"):
            await case.store.save_planner_event("trace", case.planner_event(number))
        if case.can("trajectories"):
            await case.store.save_trajectory(f"trace-{number}", "session", case.trajectory())
        if case.can("tasks"):
            await case.store.save_update(case.update(number))
        await case.store.save_event(case.event(float(number)))
    say("saved")
    await asyncio.sleep(CHILD_SECONDS)


async def add(case: StateCase, *, name: str, count: int) -> None:
    """Add items to the state under "key" by load_memory_version and if_version; answer how often another came first."""
    await go()
    say(await added(case, name, count))


async def added(case: StateCase, name: str, count: int) -> int:
    """Add so many items, each with as many attempts as it takes; how many attempts failed."""
    failed = 0
    for number in range(count):
        while True:
            state, version = await case.store.load_memory_version("key")
            items = [*(state or {"items": []})["items"], f"{name}-{number}"]
            await asyncio.sleep(0)
            try:
                await case.store.save_memory_state("key", {"items": items}, if_version=version)
            except Exception:  # noqa: BLE001  (each store has errors of its own)
                failed += 1
            else:
                break
    return failed


JOBS: dict[str, Job] = {job.__name__: job for job in (save_some, add)}


async def _run(place: StatePlace, job: str, arguments: dict[str, Any]) -> None:
    async with asyncio.timeout(CHILD_SECONDS), place.case() as case:
        await JOBS[job](case, **arguments)


def main() -> None:
    make, types, name, directory, job, arguments = pickle.loads(base64.b64decode(sys.stdin.readline()))
    place = StatePlace(StateStoreSubject(name, make, types=types), name, Path(directory))
    asyncio.run(_run(place, job, arguments))


@contextlib.asynccontextmanager
async def start(place: StatePlace, job: Job, **arguments: object) -> AsyncIterator[Child]:
    """Start a process that does this job with a store at the place; it is gone afterwards."""
    subject = place.subject
    try:
        pickled = pickle.dumps((subject.make, subject.types, place.name, str(place.directory), job.__name__, arguments))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidValue(
            f"{subject.name} is declared with processes=True, so its make must be a function of a module: {error}"
        ) from error
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"from {__name__} import main; main()",
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
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.communicate()
