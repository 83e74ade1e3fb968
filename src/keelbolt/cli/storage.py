"""`keelbolt storage`: inspects, checks and sweeps a storage. Copies and backups are in `transfer`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from keelbolt.cli.failure import FAILED
from keelbolt.cli.output import as_json, echo, print_json, print_table, progress, size
from keelbolt.cli.stores import existing
from keelbolt.kernel.contract import Problem, Stats, Swept


@click.group()
def storage() -> None:
    """Inspect, check, sweep, copy, back up and restore a storage.

    \b
    Example:
      keelbolt storage stats sqlite:///agent.db
    """


@storage.command()
@click.argument("url")
@as_json
def check(url: str, json_output: bool) -> None:
    """Read all data and report damage.

    Every stored byte is compared with its checksum. The exit code is 0 without problems and 1 with problems. Other
    processes may use the storage meanwhile.

    \b
    Example:
      keelbolt storage check sqlite:///agent.db
    """
    problems = asyncio.run(_check(url))
    if json_output:
        print_json({"problems": [asdict(problem) for problem in problems]})
    elif problems:
        print_table(["where", "problem"], [[problem.where, problem.what] for problem in problems])
        echo(f"{len(problems)} problem(s). Keep a copy of the files, then restore from a backup.")
    else:
        echo("no problems")
    if problems:
        raise SystemExit(FAILED)


async def _check(url: str) -> list[Problem]:
    problems = []
    with progress("checking") as tell:
        async with await existing(url) as kernel:
            async for problem in kernel.check():
                problems.append(problem)
                tell(f"{len(problems)} problem(s)")
    return problems


@storage.command()
@click.argument("url")
@as_json
def stats(url: str, json_output: bool) -> None:
    """Count the records, log entries, blobs and work items of a storage.

    \b
    Example:
      keelbolt storage stats sqlite:///agent.db --json
    """
    found, sweeps = asyncio.run(_stats(url))
    if json_output:
        print_json({**asdict(found), "sweeps": sweeps})
        return
    rows = [
        ["partitions", f"{found.partitions:,}", ""],
        *([f"records of {name}", f"{count:,}", ""] for name, count in sorted(found.records.items())),
        ["log entries", f"{found.entries:,}", f"in {found.streams:,} stream(s)"],
        ["blobs", f"{found.blobs:,}", size(found.blob_bytes)],
        *(
            [
                f"work in {queue}",
                f"{sum(states.values()):,}",
                ", ".join(f"{n:,} {state}" for state, n in states.items()),
            ]
            for queue, states in sorted(found.work.items())
        ),
        ["workers", f"{found.workers:,}", ""],
        ["size", size(found.bytes), ""],
        *([name, str(value), ""] for name, value in found.engine.items()),
        *([f"last sweep of {name}", *_swept(last)] for name, last in sorted(sweeps.items())),
    ]
    print_table(["name", ">count", ""], rows)


def _swept(last: Mapping[str, Any]) -> tuple[str, str]:
    """Return the time of the sweep, and what it removed."""
    at = datetime.fromtimestamp(last["at"], UTC).isoformat(timespec="seconds")
    return at, ", ".join(f"{count:,} {what}" for what, count in last["removed"].items()) or "nothing to remove"


async def _stats(url: str) -> tuple[Stats, dict[str, Mapping[str, Any]]]:
    from keelbolt.data.families import SWEEPS
    from keelbolt.data.sweeping import last_sweeps

    with progress("counting"):
        async with await existing(url) as kernel:
            found = await kernel.stats()
            return found, await last_sweeps(kernel) if SWEEPS in found.records else {}


@storage.command()
@click.argument("url")
@click.option("--limit", default=500, show_default=True, help="Maximum number of each kind to remove in one commit.")
@as_json
def sweep(url: str, limit: int, json_output: bool) -> None:
    """Remove expired records, unreferenced blobs and dead workers.

    Works in small steps, so that other processes hardly slow down.

    \b
    Example:
      keelbolt storage sweep sqlite:///agent.db
    """
    swept = asyncio.run(_sweep(url, limit))
    if json_output:
        print_json(asdict(swept))
    else:
        echo(f"removed {swept.records:,} record(s), {swept.blobs:,} blob(s), {swept.workers:,} worker(s)")


async def _sweep(url: str, limit: int) -> Swept:
    total = Swept()
    with progress("sweeping") as tell:
        async with await existing(url) as kernel:
            while (step := await kernel.sweep(limit=limit)) != Swept():
                total = Swept(total.records + step.records, total.blobs + step.blobs, total.workers + step.workers)
                tell(f"{total.records:,} record(s), {total.blobs:,} blob(s), {total.workers:,} worker(s)")
    return total
