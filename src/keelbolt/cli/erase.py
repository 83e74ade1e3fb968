"""`keelbolt erase`: everything of a task, context, session, trace, memory, thread, user or tenant, for good."""

from __future__ import annotations

import click

from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.progress import work_progress

KINDS = ("task", "context", "session", "trace", "memory", "thread", "user")


@click.command()
@operates
@click.option("--task", metavar="ID", help="A task of the agent server.")
@click.option("--context", metavar="ID", help="A context: its tasks, and the turns of its thread.")
@click.option("--session", metavar="ID", help="A session of the state store, with its traces, artifacts and memory.")
@click.option("--trace", metavar="ID", help="A trace of the state store.")
@click.option("--memory", metavar="KEY", help="A memory state of the state store.")
@click.option("--thread", metavar="ID", help="A thread of the turn runner.")
@click.option("--user", metavar="ID", help="An owner of tasks, with its turns, memory and artifacts.")
@click.option("--tenant", metavar="ID", default="", help="Alone: everything of this tenant. Else: whose subject it is.")
@click.option("--owner", metavar="ID", default="", help="The owner of the task, context or thread.")
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
    given = [(kind, id_) for kind, id_ in named.items() if id_ is not None] or [("tenant", tenant)]
    if len(given) > 1 or not given[0][1]:
        raise click.UsageError(f"name one subject: {', '.join(f'--{kind}' for kind in (*KINDS, 'tenant'))}")
    [(kind, id_)] = given
    if kind in ("user", "tenant") and not dry_run and not yes:
        click.confirm(f"Erase everything of the {kind} {id_}?", abort=True, err=True)
    subject = {"kind": kind, "id": id_, "tenant": "" if kind == "tenant" else tenant, "owner": owner}
    with work_progress("erasing", "records") as tell:
        erased = api.work("erase", body={**subject, "dryRun": dry_run, "ifIdle": if_idle}, progress=tell)
    if json_output:
        print_json(erased)
        return
    verb = "would be erased" if dry_run else "erased"
    print_table([verb, ">how many"], [[title, f"{count:,}"] for title, count in erased["erased"].items()])
    echo(f"{erased['total']:,} record(s) {verb}")
