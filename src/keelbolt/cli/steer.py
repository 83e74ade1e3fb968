"""`keelbolt tasks steer` and `fork`: steers a running task, or continues from a point of its log."""

from __future__ import annotations

import json
from typing import Any

import click

from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.options import whose
from keelbolt.cli.output import as_json, echo, print_json

STEERING = ("inject", "redirect", "pause", "resume", "prioritise")


@click.command()
@click.argument("task")
@click.argument("kind", type=click.Choice(STEERING))
@operates
@whose
@click.option("--payload", metavar="JSON", help="The payload for the worker: a JSON object.")
@click.option("--reason", default="", help="The reason, stored in the task's log.")
@as_json
def steer(
    api: Operations,
    task: str,
    kind: str,
    *,
    owner: str,
    tenant: str,
    payload: str | None,
    reason: str,
    json_output: bool,
) -> None:
    """Send steering to a running task: its worker reads it from ctx.inbox, and the task's log stores it.

    KIND is inject, redirect, pause, resume or prioritise.

    \b
    Example:
      keelbolt tasks steer 0198c2f4-7d6b-7000-8000-0123456789ab inject --payload '{"note": "hurry"}' \\
        --storage sqlite:///agent.db
    """
    body = {"kind": kind, "reason": reason, "payload": _payload(payload)}
    found = api.post("tasks", task, "steer", owner=owner, tenant=tenant, body=body)
    if json_output:
        print_json(found)
    else:
        echo(f"task {task} is steered: {kind}")


def _payload(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text) if text is not None else {}
    except ValueError:
        raise click.UsageError("--payload must be JSON") from None
    if not isinstance(found, dict):
        raise click.UsageError("--payload must be a JSON object")
    return found


@click.command()
@click.argument("task")
@operates
@whose
@click.option("--seq", type=click.IntRange(1), required=True, help="The last entry of the log to include.")
@as_json
def fork(api: Operations, task: str, *, owner: str, tenant: str, seq: int, json_output: bool) -> None:
    """Create a new task from a task's log up to an entry; the old task does not change.

    The new task gets the user's last message up to that entry. `keelbolt tasks tail TASK --after 0` shows the log.

    \b
    Example:
      keelbolt tasks fork 0198c2f4-7d6b-7000-8000-0123456789ab --seq 7 --storage sqlite:///agent.db
    """
    found = api.post("tasks", task, "fork", owner=owner, tenant=tenant, body={"seq": seq})
    if json_output:
        print_json(found)
    else:
        echo(f"forked as task {found['taskId']}")
