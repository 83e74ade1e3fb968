"""`keelbolt erase`: permanently erases a task, context, session, trace, memory, thread, user or tenant."""

from __future__ import annotations

from dataclasses import asdict

import click

from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.progress import work_progress
from keelbolt.cli.subjects import subject_of, subject_options


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
