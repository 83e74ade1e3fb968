"""`keelbolt storage copy`, `backup` and `restore`: copies a whole storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.progress import transfer_progress
from keelbolt.cli.stores import existing
from keelbolt.errors import InvalidValue

if TYPE_CHECKING:
    from keelbolt.kernel.copies import Copied, Tell

restart_option = click.option(
    "--restart", is_flag=True, help="Remove the data of an unfinished copy from the destination, and start over."
)


@click.command()
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


@click.command()
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


@click.command()
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
