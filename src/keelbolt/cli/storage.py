"""`keelbolt storage` and `keelbolt migrate`: inspects, checks, sweeps, copies and migrates a storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.failure import FAILED
from keelbolt.cli.loading import existing
from keelbolt.cli.output import as_json, echo, print_json, print_table, progress, size, transfer_progress
from keelbolt.errors import InvalidValue
from keelbolt.kernel.contract import Problem, Stats, Swept

if TYPE_CHECKING:
    from keelbolt.kernel.copies import Copied, Tell


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


# --------------------------------------------------------------------------------------------------- copies and backups


restart_option = click.option(
    "--restart", is_flag=True, help="Remove the data of an unfinished copy from the destination, and start over."
)


@storage.command()
@click.argument("source")
@click.argument("destination")
@click.option("--keep-source", is_flag=True, help="Accept writes to the source again, instead of marking it as moved.")
@restart_option
@as_json
def copy(source: str, destination: str, *, keep_source: bool, restart: bool, json_output: bool) -> None:
    """Move a whole storage into an empty one, of the same or another engine.

    Ids, versions, seqs, fences and remaining expiry times are preserved, so that cursors stay valid. Both sides are
    compared at the end; until then the destination can't be used. After an interruption, run the command again to
    continue.

    First stop the programs that use the source: it refuses writes from now on. With --keep-source it accepts writes
    again after the copy, for example to test with the copy.

    \b
    Example:
      keelbolt storage copy sqlite:///agent.db postgresql://localhost/agents
    """
    _refuse_memory(destination)
    copied = _run_transfer(lambda tell: _copy(source, destination, tell, keep_source=keep_source, restart=restart))
    _print_copied(copied, json_output, done="copied and verified")
    if not json_output:
        echo("the source accepts writes again" if keep_source else "the source is marked as moved")


async def _copy(source: str, destination: str, tell: Tell, *, keep_source: bool, restart: bool) -> Copied:
    from keelbolt.kernel.copies import copy_storage
    from keelbolt.kernel.urls import open_storage

    async with await existing(source) as one, open_storage(destination) as other:
        return await copy_storage(one, other, keep_source=keep_source, restart=restart, tell=tell)


@storage.command()
@click.argument("url")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--portable", is_flag=True, help="For SQLite, too: write the format that every engine can restore.")
@as_json
def backup(url: str, file: Path, *, portable: bool, json_output: bool) -> None:
    """Write a consistent backup of a whole storage into a new file.

    SQLite and PostgreSQL accept writes meanwhile; Redis and Valkey refuse them until the backup ends. The backup of a
    SQLite storage is a SQLite file; other engines write a portable file with checksums. The file is read back and
    checked.

    \b
    Example:
      keelbolt storage backup sqlite:///agent.db agent-backup.db
    """
    copied = _run_transfer(lambda tell: _backup(url, file, tell, portable=portable))
    _print_copied(copied, json_output, done="written and checked")


async def _backup(url: str, file: Path, tell: Tell, *, portable: bool) -> Copied:
    from keelbolt.kernel.copies import backup_storage

    async with await existing(url) as kernel:
        return await backup_storage(kernel, file, portable=portable, tell=tell)


@storage.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("url")
@restart_option
@as_json
def restore(file: Path, url: str, *, restart: bool, json_output: bool) -> None:
    """Restore a backup, of the same or another engine, into an empty storage.

    The whole file is checked before anything is written, and the storage afterwards. A storage that contains data is
    refused. Data that expired since the backup is expired.

    \b
    Example:
      keelbolt storage restore agent-backup.db sqlite:///agent-restored.db
    """
    _refuse_memory(url)
    copied = _run_transfer(lambda tell: _restore(file, url, tell, restart=restart))
    _print_copied(copied, json_output, done="restored and verified")


async def _restore(file: Path, url: str, tell: Tell, *, restart: bool) -> Copied:
    from keelbolt.kernel.copies import restore_storage

    return await restore_storage(file, url, restart=restart, tell=tell)


def _refuse_memory(url: str) -> None:
    if url.split(":", 1)[0] == "memory":
        raise InvalidValue("a copy in memory would be lost when this command ends; choose another destination")


def _run_transfer(work: Callable[[Tell], Coroutine[Any, Any, Copied]]) -> Copied:
    with transfer_progress() as tell:
        return asyncio.run(work(tell))


def _print_copied(copied: Copied, json_output: bool, *, done: str) -> None:
    if json_output:
        print_json(copied.to_json())
        return
    print_table(["table", ">rows"], [[name, f"{count:,}"] for name, count in sorted(copied.families.items())])
    rate = copied.rows / copied.seconds if copied.seconds else 0.0
    again = ", continuing an earlier run" if copied.resumed else ""
    echo(f"{copied.rows:,} rows {done} in {copied.seconds:.1f} s ({rate:,.0f}/s){again}")


# -------------------------------------------------------------------------------------------------------------- migrate


@click.command()
@click.argument("url")
@click.option("--dry-run", is_flag=True, help="Show the migrations without applying them.")
@click.option("--sql", is_flag=True, help="Show the SQL of each migration, too.")
@as_json
def migrate(url: str, dry_run: bool, sql: bool, json_output: bool) -> None:
    """Migrate a storage to the schema of this version.

    Migrations are numbered and applied in order, each exactly once. Programs apply them when they open a storage; run
    this command first to choose the time.

    \b
    Example:
      keelbolt migrate sqlite:///agent.db --dry-run --sql
    """
    from keelbolt.kernel import urls

    if dry_run:
        migrations = urls.pending_migrations(url)
    else:
        with progress("migrating"):
            migrations = urls.migrate(url)

    if json_output:
        listed = [
            {"number": each.number, "name": each.name, "checksum": each.checksum} | ({"sql": each.sql} if sql else {})
            for each in migrations
        ]
        print_json({"applied": not dry_run, "migrations": listed})
        return
    if not migrations:
        echo("nothing to do: the schema is up to date")
        return
    rows = [[str(each.number), each.name, each.checksum[:12]] for each in migrations]
    print_table([">number", "name", "checksum"], rows, title="would be applied" if dry_run else "applied")
    if sql:
        for each in migrations:
            echo(f"-- {each.number} {each.name}\n{each.sql.rstrip()}\n")
