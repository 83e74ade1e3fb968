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
@click.option("--dry-run", is_flag=True, help="Only count what would be erased; change nothing.")
@click.option("--if-idle", is_flag=True, help="Refuse a subject that a worker or a process uses.")
@click.option("--yes", is_flag=True, help="Don't ask before a user or a tenant is erased.")
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
    body = {**asdict(subject), "dryRun": dry_run, "ifIdle": if_idle}
    with work_progress("erasing", "records") as tell:
        erased = api.work("erase", body=body, progress=tell)
    if json_output:
        print_json(erased)
        return
    verb = "would be erased" if dry_run else "erased"
    print_table([verb, ">how many"], [[title, f"{count:,}"] for title, count in erased["erased"].items()])
    echo(f"{erased['total']:,} record(s) {verb}")
