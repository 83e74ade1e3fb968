"""`keelbolt data`, `erase`, `export`, `import` and `sweep`: commands for stored data of all faces."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from keelbolt.cli.failure import CommandFailure
from keelbolt.cli.loading import opened
from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.options import policies_of, retain_option, storage_option, subject_of, subject_options
from keelbolt.cli.output import as_json, echo, print_json, print_table, progress, size, work_progress
from keelbolt.kernel.private_files import create_private

if TYPE_CHECKING:
    from keelbolt.data import Exported, Imported, Subject

ANY = " or none"


@click.group()
def data() -> None:
    """List, show and count the data of the agent server, the state store, the turn runner and the adapters.

    A family is one kind of record, such as tasks, langgraph_checkpoints or openai_sessions. A subject is a task,
    context, session, thread, user or tenant.

    \b
    Example:
      keelbolt data list --storage sqlite:///agent.db
    """


@data.command("list")
@click.argument("family", required=False)
@operates
@subject_options
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of rows.")
@as_json
def list_(
    api: Operations,
    family: str | None,
    *,
    tenant: str,
    owner: str,
    limit: int,
    json_output: bool,
    **named: str | None,
) -> None:
    """List the families, or the records of a family, newest first; with a subject, only its records.

    \b
    Example:
      keelbolt data list langgraph_checkpoints --thread t-1 --storage sqlite:///agent.db
    """
    if family is None:
        families = api.get("data", "families")
        if json_output:
            print_json(families)
            return
        rows = [
            [each["face"], each["family"], each["title"], ", ".join(each["kinds"])] for each in families["families"]
        ]
        print_table(["face", "family", "title", "subjects"], rows)
        return
    query = _query(named, tenant, owner)
    records, more = api.gather("records", limit, "data", "families", family, "records", **query)
    if json_output:
        print_json({"records": records, "more": more})
        return
    rows = [[each["id"], each["partition"], each["updated"] or "", size(each["size"]), each["ref"]] for each in records]
    print_table(["id", "owner", "updated", ">size", "ref"], rows)
    if more:
        echo("there are more; use a larger --limit")


@data.command()
@click.argument("ref", required=False)
@operates
@subject_options
@as_json
def show(api: Operations, ref: str | None, *, tenant: str, owner: str, json_output: bool, **named: str | None) -> None:
    """Show a record by the REF that `keelbolt data list` prints; or a subject, with its number of records.

    Long values are truncated; `keelbolt export` writes them in full.

    \b
    Example:
      keelbolt data show --session session-1 --storage sqlite:///agent.db
    """
    query = _query(named, tenant, owner)
    if (ref is None) == (not query):
        raise click.UsageError("name a REF or one subject")
    found = api.get("data", "records", ref) if ref is not None else api.get("data", "subject", **query)
    if json_output or ref is not None:
        print_json(found)
        return
    for part in found["found"]:
        echo(f"{found['kind']} {found['id']} of {part['face']}, in {part['partition']}", bold=True)
        if part["record"] is not None:
            print_json(part["record"]["value"])
        rows = [[each["family"], each["title"], _number(each)] for each in part["members"]]
        if rows:
            print_table(["family", "title", ">count"], rows)


@data.command()
@click.argument("family", required=False)
@operates
@subject_options
@as_json
def count(
    api: Operations, family: str | None, *, tenant: str, owner: str, json_output: bool, **named: str | None
) -> None:
    """Count the records of a family, or of all families; with a subject, only its records.

    \b
    Example:
      keelbolt data count --tenant acme --storage sqlite:///agent.db
    """
    query = _query(named, tenant, owner)
    if family is not None:
        names = [family]
    else:
        listed = api.get("data", "families")["families"]
        names = [each["family"] for each in listed if each["whole"] or query]
    counts = [api.get("data", "families", name, "count", **query) for name in names]
    if json_output:
        print_json({"counts": counts})
    else:
        rows = [[each["family"], each["title"], _number(each)] for each in counts if each["count"] or family]
        print_table(["family", "title", ">count"], rows)


def _query(named: Mapping[str, str | None], tenant: str, owner: str) -> dict[str, str]:
    """Return the subject in the options as a query of a route; empty if they name none."""
    subject = subject_of(named, tenant, owner, more=ANY)
    if subject is None:
        return {"owner": owner} if owner else {}
    given = {"kind": subject.kind, "id": subject.id, "tenant": subject.tenant, "owner": subject.owner}
    return {name: text for name, text in given.items() if text}


def _number(count: Mapping[str, Any]) -> str:
    return f"{count['count']:,}{'' if count['exact'] else ' or more'}"


# ---------------------------------------------------------------------------------------------------------------- erase


@click.command()
@operates
@subject_options
@click.option("--dry-run", is_flag=True, help="Count the records without erasing them.")
@click.option("--if-idle", is_flag=True, help="Fail if a worker or a process uses the subject.")
@click.option("--yes", is_flag=True, help="Erase a user or a tenant without confirmation.")
@as_json
def erase(
    api: Operations,
    *,
    tenant: str,
    owner: str,
    dry_run: bool,
    if_idle: bool,
    yes: bool,
    json_output: bool,
    **named: str | None,
) -> None:
    """Permanently erase all data of one subject, in all parts of Keelbolt.

    This includes records, logs, files, idempotency keys, webhooks and waiting work. A worker that runs the subject is
    fenced off. To continue an interrupted erasure, run the command again; processes that serve the storage continue it,
    too. Exit code 3: the subject does not exist, or --if-idle refused it.

    \b
    Example:
      keelbolt erase --session session-1 --storage sqlite:///agent.db --dry-run
    """
    subject = subject_of(named, tenant, owner)
    assert subject is not None
    if subject.kind in ("user", "tenant") and not dry_run and not yes:
        click.confirm(f"Erase all data of the {subject.kind} {subject.id}?", abort=True, err=True)
    body = {**asdict(subject), "dryRun": dry_run, "ifIdle": if_idle}
    with work_progress("erasing", "records") as tell:
        erased = api.work("erase", body=body, progress=tell)
    if json_output:
        print_json(erased)
        return
    verb = "would be erased" if dry_run else "erased"
    print_table([verb, ">count"], [[title, f"{count:,}"] for title, count in erased["erased"].items()])
    echo(f"{erased['total']:,} record(s) {verb}")


# --------------------------------------------------------------------------------------------------------------- export


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


# ---------------------------------------------------------------------------------------------------------------- sweep


@click.command()
@operates
@retain_option
@click.option("--dry-run", is_flag=True, help="Count what --retain would remove, without removing it.")
@as_json
def sweep(api: Operations, retain: tuple[str, ...], *, dry_run: bool, json_output: bool) -> None:
    """Remove expired data, and data beyond the limits of --retain, of all tenants and owners, once.

    A limit is an age (90s, 15m, 12h, 30d, 4w) or the number of the newest items to keep. Data without a limit is kept.
    The sweep works in small steps while agents run; after an interruption, it continues where it stopped. Processes
    that serve the storage sweep by themselves.

    \b
    Example:
      keelbolt sweep --storage sqlite:///agent.db --retain completed=30d --retain log=1h --retain updates=10000
    """
    policies_of(retain)  # raises for a wrong policy before anything is removed
    with progress("sweeping") as tell:
        removed = api.work("sweep", body={"retain": list(retain), "dryRun": dry_run}, progress=tell)["removed"]
    if json_output:
        print_json({"dryRun": dry_run, "removed": removed})
        return
    rows = [[face, what, f"{count:,}"] for face, counts in removed.items() for what, count in counts.items()]
    if rows:
        print_table(["face", "would be removed" if dry_run else "removed", ">count"], rows)
    else:
        echo("nothing to remove")
