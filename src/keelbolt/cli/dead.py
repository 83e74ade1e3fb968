"""`keelbolt dead`: tasks that were given up after their last attempt."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.engine import engine_at, principal_of, storage_option, whose
from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.remote import drop_dead, list_dead, or_server, requeue_dead

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from keelbolt.tasks.dead import DeadLetter
    from keelbolt.tasks.engine import TaskEngine

everyone_option = click.option("--all", "everyone", is_flag=True, help="The dead letters of all tenants and owners.")


@click.group()
def dead() -> None:
    """Look at dead letters: tasks that were given up because their process died each time.

    Their tasks are failed. Requeue them when the cause is repaired, or drop them.

    \b
    Example:
      keelbolt dead list --storage sqlite:///agent.db --all
    """


@dead.command("list")
@or_server(list_dead)
@storage_option
@whose
@everyone_option
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@as_json
def list_(url: str, *, owner: str, tenant: str, everyone: bool, limit: int, json_output: bool) -> None:
    """List dead letters, with the reason why each was given up.

    \b
    Example:
      keelbolt dead list --storage sqlite:///agent.db --all
    """

    async def run() -> list[DeadLetter]:
        found: list[DeadLetter] = []
        async with engine_at(url) as engine, aclosing(_letters(engine, owner, tenant, everyone=everyone)) as letters:
            async for letter in letters:
                found.append(letter)
                if len(found) > limit:
                    break
        return found

    found = asyncio.run(run())
    letters, more = found[:limit], len(found) > limit
    if json_output:
        print_json({"dead": [_json(letter) for letter in letters], "more": more})
        return
    rows = [[letter.partition, letter.task_id, str(letter.attempts), letter.reason] for letter in letters]
    print_table(["partition", "task", ">attempts", "reason"], rows)
    if more:
        echo("there are more; see them with a larger --limit")


@dead.command()
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@or_server(requeue_dead)
@storage_option
@whose
@everyone_option
@as_json
def requeue(tasks: tuple[str, ...], url: str, *, owner: str, tenant: str, everyone: bool, json_output: bool) -> None:
    """Try given-up tasks anew: each becomes a new task that refers to the old one, and its dead letter is removed.

    \b
    Example:
      keelbolt dead requeue --all --storage sqlite:///agent.db
    """
    _check(tasks, everyone=everyone)
    requeued, kept = asyncio.run(_requeue(url, owner, tenant, tasks))
    if json_output:
        print_json({"requeued": [{"old": old, "new": new} for old, new in requeued], "kept": kept})
    else:
        for old, new in requeued:
            echo(f"task {old} is tried anew as {new}")
        for task in kept:
            echo(f"task {task} was left: it is not known whose it is; name it with --owner and --tenant")
    if kept:
        raise SystemExit(1)


async def _requeue(
    url: str, owner: str, tenant: str, tasks: tuple[str, ...]
) -> tuple[list[tuple[str, str]], list[str]]:
    requeued, kept = [], []
    async with engine_at(url) as engine:
        if tasks:
            wanted = [(task, principal_of(owner, tenant)) for task in tasks]
        else:
            wanted = []
            async for letter in _letters(engine, owner, tenant, everyone=True):
                if letter.principal is None:
                    kept.append(letter.task_id)
                else:
                    wanted.append((letter.task_id, letter.principal))
        for task, principal in wanted:
            sent = await engine.tasks.requeue(task, principal)
            requeued.append((task, sent.task.record.task_id))
    return requeued, kept


@dead.command()
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@or_server(drop_dead)
@storage_option
@whose
@everyone_option
@as_json
def drop(tasks: tuple[str, ...], url: str, *, owner: str, tenant: str, everyone: bool, json_output: bool) -> None:
    """Forget dead letters. Their tasks stay, and stay failed.

    \b
    Example:
      keelbolt dead drop 0198c2f4-7d6b-7000-8000-0123456789ab --storage sqlite:///agent.db
    """
    _check(tasks, everyone=everyone)
    dropped = asyncio.run(_drop(url, owner, tenant, tasks))
    if json_output:
        print_json({"dropped": dropped})
    else:
        echo(f"dropped {dropped:,} dead letter(s)")
    if dropped < len(tasks):
        raise SystemExit(1)


async def _drop(url: str, owner: str, tenant: str, tasks: tuple[str, ...]) -> int:
    from keelbolt.tasks.dead import drop as forget

    async with engine_at(url) as engine:
        if tasks:
            partition = principal_of(owner, tenant).partition
            return sum([await forget(engine.store, partition, task) for task in tasks])
        letters = [letter async for letter in _letters(engine, owner, tenant, everyone=True)]
        return sum([await forget(engine.store, letter.partition, letter.task_id) for letter in letters])


def _check(tasks: tuple[str, ...], *, everyone: bool) -> None:
    if bool(tasks) == everyone:
        raise click.UsageError("name tasks, or --all")


def _letters(engine: TaskEngine, owner: str, tenant: str, *, everyone: bool) -> AsyncGenerator[DeadLetter, None]:
    from keelbolt.tasks.overview import all_dead, dead_everywhere

    if everyone:
        return dead_everywhere(engine.store)
    return all_dead(engine.store, principal_of(owner, tenant).partition)


def _json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.task_id,
        "partition": letter.partition,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "state": letter.record.state.name if letter.record is not None else None,
    }
