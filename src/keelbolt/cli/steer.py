"""`keelbolt tasks steer` and `fork`: tell a running task something, or go on from a point of its log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from keelbolt.cli.engine import engine_at, principal_of, storage_option, whose
from keelbolt.cli.output import as_json, echo, print_json
from keelbolt.cli.remote import fork_task, or_server, read_payload, steer_task, told_steering

if TYPE_CHECKING:
    from keelbolt.tasks.inbox import SteeringKind

KINDS = ("inject", "redirect", "pause", "resume", "prioritise")


@click.command()
@click.argument("task")
@click.argument("kind", type=click.Choice(KINDS))
@or_server(steer_task)
@storage_option
@whose
@click.option("--payload", metavar="JSON", help="What its worker gets with it: a JSON object.")
@click.option("--reason", default="", help="Kept in the log of the task, for whoever reads it later.")
@as_json
def steer(
    task: str,
    kind: SteeringKind,
    url: str,
    *,
    owner: str,
    tenant: str,
    payload: str | None,
    reason: str,
    json_output: bool,
) -> None:
    """Tell a running task something: its worker hears it in ctx.inbox, and its log keeps it.

    KIND is inject, redirect, pause, resume or prioritise.

    \b
    Example:
      keelbolt tasks steer 0198c2f4-7d6b-7000-8000-0123456789ab inject --payload '{"note": "hurry"}' \\
        --storage sqlite:///agent.db
    """
    given = read_payload(payload)

    async def run() -> None:
        async with engine_at(url) as engine:
            await engine.tasks.steer(task, kind, principal_of(owner, tenant), reason=reason, payload=given)

    asyncio.run(run())
    told_steering(task, kind, json_output=json_output)


@click.command()
@click.argument("task")
@or_server(fork_task)
@storage_option
@whose
@click.option("--seq", type=click.IntRange(1), required=True, help="The last entry of the log that goes along.")
@as_json
def fork(task: str, url: str, *, owner: str, tenant: str, seq: int, json_output: bool) -> None:
    """Go on from a point of a task's log, as a new task; the old one stays as it is.

    It is sent the user's last message up to there. `keelbolt tasks tail TASK --after 0` shows the log.

    \b
    Example:
      keelbolt tasks fork 0198c2f4-7d6b-7000-8000-0123456789ab --seq 7 --storage sqlite:///agent.db
    """

    async def run() -> str:
        async with engine_at(url) as engine:
            sent = await engine.tasks.fork(task, seq, principal_of(owner, tenant))
            return sent.task.record.task_id

    found = asyncio.run(run())
    if json_output:
        print_json({"taskId": found})
    else:
        echo(f"it goes on from there as task {found}")
