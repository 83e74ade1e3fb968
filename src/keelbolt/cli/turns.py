"""`keelbolt turns`: the gates at which turns wait for a decision."""

from __future__ import annotations

import json
from typing import Any

import click

from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.output import as_json, echo, print_json, print_table

ANSWERS = ("resolve", "reject", "abort")


@click.group()
def turns() -> None:
    """List and settle the gates at which turns wait.

    \b
    Example:
      keelbolt turns gates --storage sqlite:///agent.db
    """


@turns.command()
@operates
@click.option("--tenant", default="", metavar="ID", help="The tenant of the turns.  [default: all]")
@click.option("--state", type=click.Choice(["open", "settled"]), default="open", show_default=True, help="State.")
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="Maximum number of rows.")
@as_json
def gates(api: Operations, *, tenant: str, state: str, limit: int, json_output: bool) -> None:
    """List gates: the token that settles each, its reason, state and task.

    \b
    Example:
      keelbolt turns gates --storage sqlite:///agent.db
    """
    found = api.get("gates", tenant=tenant, state=state, limit=limit)
    if json_output:
        print_json(found)
        return
    rows = [
        [each["token"], each["reason"], each["result"] or "open", _task(each), each["createdAt"]]
        for each in found["gates"]
    ]
    print_table(["token", "reason", "state", "task", "created"], rows)


@turns.command()
@click.argument("gate")
@click.argument("answer", type=click.Choice(ANSWERS))
@operates
@click.option("--value", default="null", metavar="JSON", help="The result, for resolve.")
@click.option("--reason", default="", help="The reason, for reject and abort.")
@as_json
def settle(api: Operations, gate: str, answer: str, *, value: str, reason: str, json_output: bool) -> None:
    """Settle a gate, so that its task continues. The first answer counts.

    GATE is the token that `keelbolt turns gates` shows; ANSWER is resolve, reject or abort.

    \b
    Example:
      keelbolt turns settle fmFub255bW91cw.tVt8T3gPhk resolve --value '{"amount": 20}' --storage sqlite:///agent.db
    """
    try:
        given = json.loads(value)
    except ValueError as wrong:
        raise click.BadParameter(f"not JSON: {wrong}", param_hint="--value") from None
    found = api.post("gates", gate, body={"answer": answer, "value": given, "reason": reason})
    if json_output:
        print_json(found)
        return
    continues = "; its task continues" if found["taskGoesOn"] else ""
    echo(f"the gate is {found['result']}{continues}")


def _task(gate: dict[str, Any]) -> str:
    about = gate["about"]
    return str(about.get("taskId", "")) if isinstance(about, dict) else ""
