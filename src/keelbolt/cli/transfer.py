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
    "--restart", is_flag=True, help="Clear what an unfinished copy has left in the destination, and begin anew."
)


@click.command()
@click.argument("source")
@click.argument("destination")
@click.option("--keep-source", is_flag=True, help="Let the source take writes again, instead of marking it as moved.")
@restart_option
@as_json
def copy(source: str, destination: str, *, keep_source: bool, restart: bool, json_output: bool) -> None:
    """Move a whole storage into an empty one, also of another engine.

    Ids, versions, seqs, fences and what is left of every expiry are kept, so that cursors stay valid. Both sides are
    compared at the end; until then the destination can't be used. Interrupted, it goes on when it is run again.

    Stop the programs that use the source first: it refuses to be written from now on. With --keep-source it takes
    writes again afterwards, for a copy to test with.

    \b
    Example:
      keelbolt storage copy sqlite:///agent.db postgresql://localhost/agents
    """
    _refuse_memory(destination)
    copied = _run(lambda tell: _copy(source, destination, tell, keep_source=keep_source, restart=restart))
    _print(copied, json_output, done="copied and verified")
    if not json_output:
        echo("the source takes writes again" if keep_source else "the source is marked as moved")


async def _copy(source: str, destination: str, tell: Tell, *, keep_source: bool, restart: bool) -> Copied:
    from keelbolt.kernel.copies import copy_storage
    from keelbolt.kernel.urls import open_storage

    async with await existing(source) as one, open_storage(destination) as other:
        return await copy_storage(one, other, keep_source=keep_source, restart=restart, tell=tell)


@click.command()
@click.argument("url")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--portable", is_flag=True, help="Of SQLite too: write the form that another engine can restore.")
@as_json
def backup(url: str, file: Path, *, portable: bool, json_output: bool) -> None:
    """Write a whole storage, as it is at one moment, into a new file.

    SQLite and PostgreSQL take writes meanwhile; Redis and Valkey refuse them until the backup is made. A SQLite storage
    becomes a SQLite file; every other one a portable file with checksums. What was written is read back and checked.

    \b
    Example:
      keelbolt storage backup sqlite:///agent.db agent-backup.db
    """
    copied = _run(lambda tell: _backup(url, file, tell, portable=portable))
    _print(copied, json_output, done="written and checked")


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
    """Fill an empty storage from a backup, also of another engine.

    The whole file is checked before anything is written, and the storage afterwards. A storage that holds data is left
    alone. Times that ended since the backup was made have ended.

    \b
    Example:
      keelbolt storage restore agent-backup.db sqlite:///agent-restored.db
    """
    _refuse_memory(url)
    copied = _run(lambda tell: _restore(file, url, tell, restart=restart))
    _print(copied, json_output, done="restored and verified")


async def _restore(file: Path, url: str, tell: Tell, *, restart: bool) -> Copied:
    from keelbolt.kernel.copies import restore_storage

    return await restore_storage(file, url, restart=restart, tell=tell)


def _refuse_memory(url: str) -> None:
    if url.split(":", 1)[0] == "memory":
        raise InvalidValue("a copy in memory would be gone when this command ends; name another destination")


def _run(work: Callable[[Tell], Coroutine[Any, Any, Copied]]) -> Copied:
    with transfer_progress() as tell:
        return asyncio.run(work(tell))


def _print(copied: Copied, json_output: bool, *, done: str) -> None:
    if json_output:
        print_json(copied.to_json())
        return
    print_table(["what", ">rows"], [[name, f"{count:,}"] for name, count in sorted(copied.families.items())])
    rate = copied.rows / copied.seconds if copied.seconds else 0.0
    again = ", going on with an earlier run" if copied.resumed else ""
    echo(f"{copied.rows:,} rows {done} in {copied.seconds:.1f} s ({rate:,.0f}/s){again}")
