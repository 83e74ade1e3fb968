"""`keelbolt export` and `keelbolt import`: any subject, or everything, to a file and back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from keelbolt.cli.failure import CommandFailure
from keelbolt.cli.options import storage_option
from keelbolt.cli.output import as_json, echo, print_json, size
from keelbolt.cli.progress import work_progress
from keelbolt.cli.stores import opened
from keelbolt.cli.subjects import subject_of, subject_options
from keelbolt.kernel.private_files import create_private

if TYPE_CHECKING:
    from keelbolt.data import Exported, Imported, Subject


@click.command("export")
@storage_option()
@subject_options
@click.option("--all", "everything", is_flag=True, help="Export the whole storage, all tenants.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    required=True,
    help="A new file; - is standard output.",
)
@as_json
def export_command(
    url: str,
    *,
    tenant: str,
    owner: str,
    everything: bool,
    output: Path,
    json_output: bool,
    **named: str | None,
) -> None:
    """Write all data of one subject, or with --all of the storage, into a file for `keelbolt import`.

    The file contains lines of JSON with checksums, and the bytes of files. It can be imported on any engine. Leases and
    claims are not exported: unfinished work waits for a worker after the import. The file may contain secrets, such as
    those of webhooks; only its owner can read it. Exit code 3: the subject does not exist.

    \b
    Example:
      keelbolt export --session session-1 --storage sqlite:///agent.db --output session-1.jsonl
    """
    subject = subject_of(named, tenant, owner, more=" or --all")
    if everything == (subject is not None):
        raise click.UsageError("name one subject or use --all")
    with _written(output) as file:
        exported = asyncio.run(_export(url, subject, file))
    if json_output and output != Path("-"):
        print_json({"records": exported.records, "bytes": exported.bytes, "skipped": exported.skipped})
    else:
        echo(f"{exported.records:,} record(s), {size(exported.bytes)}", err=True)
    if exported.skipped:
        names = ", ".join(exported.skipped[:10])
        raise CommandFailure(
            f"not exported, because they changed all the time: {names}; stop their workers and export again"
        )


@contextmanager
def _written(output: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which is removed on failure; or standard output."""
    if output == Path("-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = os.fdopen(create_private(output), "wb")
    except OSError as error:
        raise CommandFailure(f"can't write {output}: {error.strerror}; choose a new file") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        output.unlink()
        raise


async def _export(url: str, subject: Subject | None, file: BinaryIO) -> Exported:
    from keelbolt.data import export

    # A progress bar would mix with the lines of an export to standard output.
    quiet = file is sys.stdout.buffer
    with nullcontext(lambda _done: None) if quiet else work_progress("exporting", "records") as tell:
        async with await opened(url) as kernel:
            return await export(kernel, subject, file, tell=lambda step: tell(step.records))


@click.command("import")
@click.argument("file", type=click.File("rb"))
@storage_option()
@as_json
def import_command(file: BinaryIO, url: str, *, json_output: bool) -> None:
    """Import an export; - reads standard input. The storage is created if it does not exist.

    The whole file is checked first. A subject becomes visible when it is complete; after an interruption, run the
    command again. Existing data is not changed. Exit code 3: a subject exists with different content.

    \b
    Example:
      keelbolt import session-1.jsonl --storage postgresql://localhost/agents
    """
    imported = asyncio.run(_import(url, file))
    if json_output:
        print_json({"records": imported.records, "new": imported.new, "bytes": imported.bytes})
    else:
        echo(f"{imported.records:,} record(s) read, {imported.new:,} of them new")


async def _import(url: str, file: BinaryIO) -> Imported:
    from keelbolt.data import import_export

    with work_progress("importing", "records") as tell:
        async with await opened(url, create=True) as kernel:
            return await import_export(kernel, file, tell=lambda step: tell(step.records))
