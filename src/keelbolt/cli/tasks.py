"""`keelbolt tasks`: look at tasks and do what their owners can do, on any engine, beside whoever runs them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.engine import STATES, engine_at, principal_of, storage_option, whose
from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.remote import cancel_task, erase_tasks, list_tasks, or_server, requeue_task
from keelbolt.cli.show import show
from keelbolt.cli.steer import fork, steer
from keelbolt.cli.tail import tail

if TYPE_CHECKING:
    from keelbolt.auth.principal import Principal
    from keelbolt.tasks.overview import Overview
    from keelbolt.tasks.record import TaskRecord


@click.group()
def tasks() -> None:
    """Look at tasks, send, follow, cancel, steer, fork, requeue and erase them.

    --owner and --tenant say whose tasks are meant; without them it is those of anonymous callers.

    \b
    Example:
      keelbolt tasks list --storage sqlite:///agent.db --state working
    """


tasks.add_command(show)
tasks.add_command(tail)
tasks.add_command(steer)
tasks.add_command(fork)


# --------------------------------------------------------------------------------------------------------------- list


@tasks.command("list")
@or_server(list_tasks)
@storage_option
@whose
@click.option("--all", "everyone", is_flag=True, help="The tasks of all tenants and owners.")
@click.option("--state", type=click.Choice(STATES), help="Only tasks in this state.")
@click.option("--context", metavar="ID", help="Only tasks of this context.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="How many.")
@click.option("--page", metavar="TOKEN", help="The next page: the token that the last one ended with.")
@as_json
def list_(
    url: str,
    *,
    owner: str,
    tenant: str,
    everyone: bool,
    state: str | None,
    context: str | None,
    limit: int,
    page: str | None,
    json_output: bool,
) -> None:
    """List tasks, the newest status first.

    \b
    Example:
      keelbolt tasks list --storage sqlite:///agent.db --all --state failed
    """
    principal = None if everyone else principal_of(owner, tenant)
    found = asyncio.run(
        _list(url, principal, {"status": state, "context_id": context, "page_size": limit, "page_token": page})
    )
    if json_output:
        listed = [summary(partition, record) for partition, record in found.tasks]
        print_json({"tasks": listed, "nextPageToken": found.next_page_token})
        return
    columns = [*(["partition"] if everyone else []), "task", "state", "since", "context"]
    rows = [
        [
            *([partition] if everyone else []),
            record.task_id,
            record.state.name,
            _time(record.updated),
            record.context_id,
        ]
        for partition, record in found.tasks
    ]
    print_table(columns, rows)
    if found.next_page_token:
        echo(f"there are more: --page {found.next_page_token}")


async def _list(url: str, principal: Principal | None, filters: dict[str, Any]) -> Overview:
    from keelbolt.tasks.listing import list_records
    from keelbolt.tasks.overview import Overview, list_everywhere
    from keelbolt.tasks.queries import ListTasksQuery

    query = ListTasksQuery(**filters)
    async with engine_at(url) as engine:
        if principal is None:
            return await list_everywhere(engine.store, query)
        page = await list_records(engine.store, principal.partition, query)
        return Overview(tuple((principal.partition, record) for record in page.records), page.next_page_token)


def summary(partition: str, record: TaskRecord) -> dict[str, Any]:
    """A task in a list, for programs."""
    return {
        "id": record.task_id,
        "contextId": record.context_id,
        "state": record.state.name,
        "created": _time(record.created),
        "updated": _time(record.updated),
        "partition": partition,
    }


def _time(microseconds: int) -> str:
    from keelbolt.protocol.types import timestamp

    return timestamp(microseconds)


# --------------------------------------------------------------------------------------------------------------- send


@tasks.command()
@storage_option
@whose
@click.option("--text", required=True, help="What to say.")
@click.option("--task", metavar="ID", help="Continue this task, instead of a new one.")
@click.option("--context", metavar="ID", help="The context of the new task.")
@click.option("--wait", type=float, default=0.0, metavar="SECONDS", help="Wait for the answer, up to so long.")
@as_json
def send(
    url: str,
    *,
    owner: str,
    tenant: str,
    text: str,
    task: str | None,
    context: str | None,
    wait: float,
    json_output: bool,
) -> None:
    """Send a text message, to try things: it makes a task, which a `keelbolt worker` on the same storage runs.

    \b
    Example:
      keelbolt tasks send --storage sqlite:///agent.db --text "Hello" --wait 10
    """
    message = {"text": text, "task_id": task, "context_id": context}
    _print_task(asyncio.run(_send(url, principal_of(owner, tenant), message, wait)), json_output=json_output)


async def _send(url: str, principal: Principal, message: dict[str, Any], wait: float) -> bytes:
    from keelbolt.protocol.types import Message, Part, Role
    from keelbolt.storage import new_id
    from keelbolt.tasks.envelope import Envelope

    words = Message(message_id=new_id(), role=Role.user, parts=[Part(text=message.pop("text"))], **message)
    async with engine_at(url, create=True) as engine:
        sent = await engine.tasks.send(words, Envelope(principal=principal))
        task = await engine.tasks.settled(sent, seconds=wait) if wait > 0 else sent.task
        return await engine.store.task_json(task, history_length=0)


def _print_task(text: bytes, *, json_output: bool) -> None:
    """The task as the protocol writes it, or its state and what its agent says."""
    task = json.loads(text)
    if json_output:
        print_json(task)
        return
    echo(f"task {task['id']} is {task['status']['state'].removeprefix('TASK_STATE_').lower()}")
    for holder in (*task.get("artifacts", []), task["status"].get("message", {})):
        if words := "".join(part.get("text", "") for part in holder.get("parts", [])):
            echo(words)


# ---------------------------------------------------------------------------------------------------- cancel, requeue


@tasks.command()
@click.argument("task")
@or_server(cancel_task)
@storage_option
@whose
@click.option("--reason", default="", help="Kept in the log of the task, for whoever reads it later.")
@as_json
def cancel(task: str, url: str, *, owner: str, tenant: str, reason: str, json_output: bool) -> None:
    """Cancel a task, wherever it runs; waits a few seconds for its worker to stop.

    \b
    Example:
      keelbolt tasks cancel 0198c2f4-7d6b-7000-8000-0123456789ab --storage sqlite:///agent.db
    """

    async def run() -> tuple[bytes, bool]:
        async with engine_at(url) as engine:
            ended = await engine.tasks.cancel(task, principal_of(owner, tenant), reason=reason)
            return await engine.store.task_json(ended, history_length=0), ended.view.state.terminal

    text, ended = asyncio.run(run())
    _print_task(text, json_output=json_output)
    if not ended and not json_output:
        echo("its worker is told to stop, and stopped soon if it does not heed that")


@tasks.command()
@click.argument("task")
@or_server(requeue_task)
@storage_option
@whose
@as_json
def requeue(task: str, url: str, *, owner: str, tenant: str, json_output: bool) -> None:
    """Try a task anew that failed, was rejected or was canceled.

    A task that is over stays as it is: its last message makes a new one in the same context, which refers to it. A dead
    letter of the old one is removed. Requeued again, it answers the same new task.

    \b
    Example:
      keelbolt tasks requeue 0198c2f4-7d6b-7000-8000-0123456789ab --storage sqlite:///agent.db
    """

    async def run() -> bytes:
        async with engine_at(url) as engine:
            sent = await engine.tasks.requeue(task, principal_of(owner, tenant))
            return await engine.store.task_json(sent.task, history_length=0)

    _print_task(asyncio.run(run()), json_output=json_output)


# -------------------------------------------------------------------------------------------------------------- erase


@tasks.command()
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@or_server(erase_tasks)
@storage_option
@whose
@click.option("--context", metavar="ID", help="Every task of this context, and what the worker kept about it.")
@click.option("--everything", is_flag=True, help="Every task and every context of the owner.")
@click.option("--yes", is_flag=True, help="Don't ask before everything is erased.")
@as_json
def erase(
    tasks: tuple[str, ...],
    url: str,
    *,
    owner: str,
    tenant: str,
    context: str | None,
    everything: bool,
    yes: bool,
    json_output: bool,
) -> None:
    """Erase tasks for good: record, log, artifacts, messages, whatever their state. A running one is stopped.

    \b
    Example:
      keelbolt tasks erase --context talk-17 --owner alice --storage sqlite:///agent.db
    """
    if sum((bool(tasks), context is not None, everything)) != 1:
        raise click.UsageError("name tasks, or --context ID, or --everything")
    principal = principal_of(owner, tenant)
    if everything and not yes:
        click.confirm(f"Erase every task of {principal.partition}?", abort=True, err=True)
    count = asyncio.run(_erase(url, principal.partition, tasks, context))
    if json_output:
        print_json({"erased": count})
    else:
        echo(f"erased {count:,} task(s)")
    if count < len(tasks):
        raise SystemExit(1)


async def _erase(url: str, partition: str, tasks: tuple[str, ...], context: str | None) -> int:
    from keelbolt.tasks.erase import erase_context, erase_owner, erase_task

    async with engine_at(url) as engine:
        if context is not None:
            return await erase_context(engine.store, partition, context)
        if not tasks:
            return await erase_owner(engine.store, partition)
        return sum([await erase_task(engine.store, partition, task) for task in tasks])
