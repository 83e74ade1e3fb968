"""`keelbolt dead`: tasks that were given up after their last attempt."""

from __future__ import annotations

from typing import Any

import click

from keelbolt.cli.failure import REFUSED
from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.options import whose_or_all
from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.tasks import deleted


@click.group()
def dead() -> None:
    """Manage dead letters: tasks whose process died in every attempt.

    These tasks are failed. Requeue them after fixing the cause, or drop them.

    \b
    Example:
      keelbolt dead list --storage sqlite:///agent.db --all
    """


@dead.command("list")
@operates
@whose_or_all
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of rows.")
@as_json
def list_(api: Operations, *, whose: dict[str, Any], limit: int, json_output: bool) -> None:
    """List dead letters with their reasons.

    \b
    Example:
      keelbolt dead list --storage sqlite:///agent.db --all
    """
    letters, more = api.gather("dead", limit, "dead", **whose)
    if json_output:
        print_json({"dead": letters, "more": more})
        return
    rows = [[each["taskId"], str(each["attempts"]), each["partition"], each["reason"]] for each in letters]
    print_table(["task", ">attempts", "owner", "reason"], rows)
    if more:
        echo("there are more; use a larger --limit")


@dead.command()
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@operates
@whose_or_all
@as_json
def requeue(api: Operations, tasks: tuple[str, ...], *, whose: dict[str, Any], json_output: bool) -> None:
    """Retry dead letters: each becomes a new task that refers to the old one, and its dead letter is removed.

    The exit code is 3 if some are skipped because their sender is unknown.

    \b
    Example:
      keelbolt dead requeue --all --storage sqlite:///agent.db
    """
    _check(tasks, everyone=whose["all"])
    requeued, kept = list[dict[str, str]](), list[str]()
    for task in tasks:
        new = api.post("tasks", task, "requeue", **whose)["taskId"]
        requeued.append({"taskId": task, "newTaskId": new})
    for page in [] if tasks else api.pages("POST", "dead", "requeue", **whose):
        requeued += page["requeued"]
        kept += page["kept"]
    if json_output:
        print_json({"requeued": requeued, "kept": kept})
    else:
        for each in requeued:
            echo(f"task {each['taskId']} is retried as {each['newTaskId']}")
        for task in kept:
            echo(f"task {task} is skipped: its sender is unknown; set --owner and --tenant")
    if kept:
        raise SystemExit(REFUSED)


@dead.command()
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@operates
@whose_or_all
@as_json
def drop(api: Operations, tasks: tuple[str, ...], *, whose: dict[str, Any], json_output: bool) -> None:
    """Remove dead letters. Their tasks stay failed.

    The exit code is 3 if one of them does not exist; the others are removed.

    \b
    Example:
      keelbolt dead drop 0198c2f4-7d6b-7000-8000-0123456789ab --storage sqlite:///agent.db
    """
    _check(tasks, everyone=whose["all"])
    if tasks:
        dropped = sum(deleted(api, "dropped", "dead", task, **whose) for task in tasks)
    else:
        dropped = sum(page["dropped"] for page in api.pages("DELETE", "dead", **whose))
    if json_output:
        print_json({"dropped": dropped})
    else:
        echo(f"dropped {dropped:,} dead letter(s)")
    if dropped < len(tasks):
        raise SystemExit(REFUSED)


def _check(tasks: tuple[str, ...], *, everyone: bool) -> None:
    if bool(tasks) == everyone:
        raise click.UsageError("name tasks or use --all")
