"""`keelbolt erase`: everything of a task, context, session, trace, memory, thread, user or tenant, for good."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from keelbolt.cli.engine import opened, storage_option
from keelbolt.cli.failure import Failure
from keelbolt.cli.output import as_json, echo, print_json, print_table, progress
from keelbolt.cli.subjects import subject_of, subject_options
from keelbolt.errors import SubjectInUse, SubjectNotFound

if TYPE_CHECKING:
    from keelbolt.data import Erased, Subject


class _Refused(Failure):
    exit_code = 3


@click.command()
@storage_option
@subject_options
@click.option("--dry-run", is_flag=True, help="Only count what would be erased; change nothing.")
@click.option("--if-idle", is_flag=True, help="Refuse a subject that a worker or a process uses.")
@click.option("--yes", is_flag=True, help="Don't ask before a user or a tenant is erased.")
@as_json
def erase(
    url: str,
    *,
    tenant: str,
    owner: str,
    dry_run: bool,
    if_idle: bool,
    yes: bool,
    json_output: bool,
    **named: str | None,
) -> None:
    """Erase everything of one subject, in all parts of Keelbolt, for good.

    Records, logs, files, idempotency keys, webhooks and waiting work go with it. A worker that runs the subject is
    fenced off. An interrupted erasure goes on when the command is given again, and in any process that serves the
    storage. Exit code 3: there is no such subject, or --if-idle refused it.

    \b
    Example:
      keelbolt erase --session session-1 --storage sqlite:///agent.db --dry-run
    """
    subject = subject_of(named, tenant, owner)
    assert subject is not None
    if subject.kind in ("user", "tenant") and not dry_run and not yes:
        click.confirm(f"Erase everything of the {subject.kind} {subject.id}?", abort=True, err=True)
    try:
        erased = asyncio.run(_erase(url, subject, dry_run=dry_run, if_idle=if_idle))
    except (SubjectNotFound, SubjectInUse) as refused:
        raise _Refused(str(refused)) from refused
    if json_output:
        print_json({"dryRun": dry_run, "erased": dict(sorted(erased.records.items())), "total": erased.total})
        return
    verb = "would be erased" if dry_run else "erased"
    print_table([verb, ">how many"], [[title, f"{count:,}"] for title, count in sorted(erased.records.items())])
    echo(f"{erased.total:,} record(s) {verb}")


async def _erase(url: str, subject: Subject, *, dry_run: bool, if_idle: bool) -> Erased:
    from keelbolt.data import erase, resume_erasures
    from keelbolt.data.erasing import declare
    from keelbolt.storage import Swept

    with progress("erasing") as tell:
        async with await opened(url) as kernel:
            await declare(kernel)
            if not dry_run:
                await resume_erasures(kernel)
            erased = await erase(
                kernel, subject, dry_run=dry_run, if_idle=if_idle, tell=lambda count: tell(f"{count:,} record(s)")
            )
            if not dry_run:
                while await kernel.sweep() != Swept():
                    pass
                await kernel.scrub()
            return erased
