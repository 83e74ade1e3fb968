"""`keelbolt turns`: the gates at which turns wait for somebody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.engine import engine_at, storage_option
from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.remote import Remote, or_server

if TYPE_CHECKING:
    from keelbolt.tasks.engine import TaskEngine
    from keelbolt.turns.durable.gate_records import GateState
    from keelbolt.turns.durable.gates import DurableGates

ANSWERS = ("resolve", "reject", "abort")


@click.group()
def turns() -> None:
    """Look at the gates at which turns wait, and settle them.

    \b
    Example:
      keelbolt turns gates --storage sqlite:///agent.db
    """


@asynccontextmanager
async def _gates_at(url: str) -> AsyncIterator[tuple[DurableGates, TaskEngine]]:
    from keelbolt.turns.durable.gates import DurableGates

    async with engine_at(url) as engine:
        gates = DurableGates(engine.kernel)
        await gates.declare()
        yield gates, engine


def _list_remote(remote: Remote, *, state: str, limit: int, json_output: bool) -> None:
    found = remote.call("GET", "/gates", state=state, limit=limit)
    _print_gates(found["gates"], json_output=json_output)


@turns.command()
@or_server(_list_remote)
@storage_option
@click.option("--of", "tenant", default="", metavar="TENANT", help="The tenant of the turns; without it, all.")
@click.option("--state", type=click.Choice(["open", "settled"]), default="open", show_default=True, help="Which.")
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="How many.")
@as_json
def gates(url: str, *, tenant: str, state: GateState, limit: int, json_output: bool) -> None:
    """List gates: what each asks, of which task, and the token that settles it.

    \b
    Example:
      keelbolt turns gates --storage sqlite:///agent.db
    """

    async def run() -> list[dict[str, Any]]:
        async with _gates_at(url) as (found, _):
            return [gate.to_json() for gate in await found.list(tenant=tenant or None, state=state, limit=limit)]

    _print_gates(asyncio.run(run()), json_output=json_output)


def _settle_remote(remote: Remote, gate: str, answer: str, *, value: str, reason: str, json_output: bool) -> None:
    body = {"answer": answer, "value": _value(value), "reason": reason}
    _print_settled(remote.call("POST", f"/gates/{gate}", body=body), json_output=json_output)


@turns.command()
@click.argument("gate")
@click.argument("answer", type=click.Choice(ANSWERS))
@or_server(_settle_remote)
@storage_option
@click.option("--value", default="null", metavar="JSON", help="The answer with which it is resolved.")
@click.option("--reason", default="", help="Why it is rejected or aborted.")
@as_json
def settle(gate: str, answer: str, url: str, *, value: str, reason: str, json_output: bool) -> None:
    """Settle a gate, and let the task that waits at it go on. The first who settles it wins.

    GATE is the token that `keelbolt turns gates` shows; ANSWER is resolve, reject or abort.

    \b
    Example:
      keelbolt turns settle fmFub255bW91cw.tVt8T3gPhk resolve --value '{"amount": 20}' --storage sqlite:///agent.db
    """
    given = _value(value)

    async def run() -> dict[str, Any]:
        from keelbolt.turns.waking import wake_task

        async with _gates_at(url) as (gates, engine):
            if answer == "resolve":
                settled = await gates.resolve(gate, given)
            elif answer == "reject":
                settled = await gates.reject(gate, reason or "it was rejected")
            else:
                settled = await gates.abort(gate, reason or None)
            return {**settled.to_json(), "taskGoesOn": await wake_task(engine.tasks, settled)}

    _print_settled(asyncio.run(run()), json_output=json_output)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as wrong:
        raise click.BadParameter(f"it is not JSON: {wrong}", param_hint="--value") from None


def _print_gates(found: list[dict[str, Any]], *, json_output: bool) -> None:
    if json_output:
        print_json({"gates": found})
        return
    rows = [[each["token"], each["reason"], each["result"] or "open", _task(each), each["createdAt"]] for each in found]
    print_table(["token", "asks", "state", "task", "since"], rows)


def _task(gate: dict[str, Any]) -> str:
    about = gate["about"]
    return str(about.get("taskId", "")) if isinstance(about, dict) else ""


def _print_settled(gate: dict[str, Any], *, json_output: bool) -> None:
    if json_output:
        print_json(gate)
        return
    goes_on = "; its task goes on" if gate["taskGoesOn"] else ""
    echo(f"the gate is {gate['result']}{goes_on}")
