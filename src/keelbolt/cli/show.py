"""`keelbolt tasks show`: everything about one task."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from keelbolt.cli.engine import engine_at, principal_of, storage_option, whose
from keelbolt.cli.output import as_json, echo, print_json, print_table, print_traceback
from keelbolt.cli.remote import or_server, show_task

if TYPE_CHECKING:
    from keelbolt.tasks.report import TaskReport


@click.command()
@click.argument("task")
@or_server(show_task)
@storage_option
@whose
@as_json
def show(task: str, url: str, *, owner: str, tenant: str, json_output: bool) -> None:
    """Show a task: where it stands, which process ran which attempt, its steps, what steered it, its artifacts.

    A step that began and never reported is IN DOUBT: nobody knows whether it took effect. An exception of the worker is
    shown with its traceback; the task's caller sees only that the agent failed.

    \b
    Example:
      keelbolt tasks show 0198c2f4-7d6b-7000-8000-0123456789ab --storage sqlite:///agent.db
    """
    from pydantic_core import from_json

    report, text = asyncio.run(_look(url, owner, tenant, task))
    if json_output:
        print_json(_json(report, from_json(text)))
    else:
        _print(report)


async def _look(url: str, owner: str, tenant: str, task: str) -> tuple[TaskReport, bytes]:
    from keelbolt.tasks.report import report

    async with engine_at(url) as engine:
        found = await report(engine.store, principal_of(owner, tenant).partition, task)
        return found, await engine.store.task_json(found.task)


def _json(report: TaskReport, task: dict[str, Any]) -> dict[str, Any]:
    item = report.item
    return {
        "task": task,
        "partition": report.task.partition,
        "log": {"head": report.task.version, "floor": report.floor},
        "work": structs.asdict(item) if item is not None else None,
        **{
            name: [asdict(each) for each in getattr(report, name)]
            for name in ("attempts", "steps", "steering", "artifacts", "errors")
        },
        "inDoubt": [step.step for step in report.in_doubt],
    }


def _print(report: TaskReport) -> None:
    from pydantic_core import from_json

    from keelbolt.protocol.types import timestamp

    record, view = report.task.record, report.task.view
    said = [part["text"] for part in from_json(view.status).get("message", {}).get("parts", []) if "text" in part]
    rows = [
        ["task", record.task_id],
        ["context", record.context_id],
        ["of", report.task.partition],
        ["state", f"{view.state.name} since {timestamp(record.updated)}"],
        *([["says", " ".join(said)[:500]]] if said else []),
        ["created", timestamp(record.created)],
        ["log", f"{view.head:,} entries{f', trimmed up to {report.floor:,}' if report.floor else ''}"],
        ["work", _work(report)],
    ]
    for name, value in rows:
        echo(f"{name:<9}{value}")
    for step in report.in_doubt:
        text = f"IN DOUBT: the step {step.step!r} of turn {step.turn} began and never reported"
        echo(f"\n{text}; nobody knows whether it took effect", fg="red", bold=True)
    for error in report.errors:
        echo(f"\nattempt {error.attempt} of turn {error.turn} failed: {error.type}: {error.message}", fg="red")
        print_traceback(error.traceback)
    echo()
    _table(
        ["turn", "attempt", "process", "began"],
        [[str(each.turn), str(each.attempt), each.worker, timestamp(each.at)] for each in report.attempts],
    )
    _table(
        ["turn", "step", "state"],
        [[str(each.turn), each.step, "IN DOUBT" if each.in_doubt else each.state] for each in report.steps],
    )
    _table(
        ["steered by", "source", "reason", "at"],
        [[each.kind, each.source, each.reason, timestamp(each.at)] for each in report.steering],
    )
    _table(
        ["artifact", "name", ">chunks", "turn", ""],
        [
            [each.artifact_id, each.name, f"{each.chunks:,}", str(each.turn), "" if each.sealed else "open"]
            for each in report.artifacts
        ],
    )


def _table(columns: list[str], rows: list[list[str]]) -> None:
    if rows:
        print_table(columns, rows)


def _work(report: TaskReport) -> str:
    item = report.item
    if item is None:
        return "nothing to do"
    if item.state == "dead":
        return f"dead after {item.attempt} attempt(s): {item.reason}"
    if item.holder is not None:
        return f"attempt {item.attempt}, held by {item.holder}"
    return f"waits for a worker{f', ready in {item.ready_in:.1f} s' if item.ready_in > 0 else ''}"
