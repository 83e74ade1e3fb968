"""`keelbolt tasks show`: everything about one task."""

from __future__ import annotations

from typing import Any

import click

from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.options import whose
from keelbolt.cli.output import as_json, echo, print_json, print_table, print_traceback


@click.command()
@click.argument("task")
@operates
@whose
@as_json
def show(api: Operations, task: str, *, owner: str, tenant: str, json_output: bool) -> None:
    """Show a task: its state, the process of each attempt, its steps, steering and artifacts.

    A step that started without a recorded end is IN DOUBT: it may have taken effect. An exception of the worker is
    shown with its traceback; the task's caller sees only that the agent failed.

    \b
    Example:
      keelbolt tasks show 0198c2f4-7d6b-7000-8000-0123456789ab --storage sqlite:///agent.db
    """
    found = api.get("tasks", task, owner=owner, tenant=tenant, report=True)
    if json_output:
        print_json(found)
    else:
        _print_report(found)


def _print_report(found: dict[str, Any]) -> None:
    task, report = found["task"], found["report"]
    status = task["status"]
    said = [part["text"] for part in status.get("message", {}).get("parts", []) if "text" in part]
    state = status["state"].removeprefix("TASK_STATE_").lower()
    trimmed = f", trimmed up to {found['floor']:,}" if found["floor"] else ""
    rows = [
        ["task", task["id"]],
        ["context", task["contextId"]],
        ["owner", found["partition"]],
        ["state", f"{state} since {status['timestamp']}"],
        *([["message", " ".join(said)[:500]]] if said else []),
        ["created", found["created"]],
        ["log", f"{found['version']:,} entries{trimmed}"],
        ["work", _work(found["work"])],
    ]
    for name, value in rows:
        echo(f"{name:<9}{value}")
    for step in report["steps"]:
        if step["inDoubt"]:
            text = f"IN DOUBT: the step {step['step']!r} of turn {step['turn']} started, and its end is not recorded"
            echo(f"\n{text}; it may have taken effect", fg="red", bold=True)
    for error in report["errors"]:
        place = f"attempt {error['attempt']} of turn {error['turn']}"
        echo(f"\n{place} failed: {error['type']}: {error['message']}", fg="red")
        print_traceback(error["traceback"])
    echo()
    _print_items(report["attempts"], {"turn": "turn", "attempt": "attempt", "worker": "process", "at": "started"})
    steps = [{**step, "state": "IN DOUBT" if step["inDoubt"] else step["state"]} for step in report["steps"]]
    _print_items(steps, {"turn": "turn", "step": "step", "state": "state"})
    _print_items(report["steering"], {"kind": "steering", "source": "source", "reason": "reason", "at": "at"})
    artifacts = [{**each, "sealed": "" if each["sealed"] else "open"} for each in report["artifacts"]]
    _print_items(
        artifacts, {"artifactId": "artifact", "name": "name", "chunks": ">chunks", "turn": "turn", "sealed": ""}
    )


def _print_items(items: list[dict[str, Any]], columns: dict[str, str]) -> None:
    if items:
        print_table(list(columns.values()), [[str(item[name]) for name in columns] for item in items])


def _work(work: dict[str, Any] | None) -> str:
    if work is None:
        return "none"
    if work["state"] == "dead":
        return f"dead after {work['attempt']} attempt(s): {work['reason']}"
    if work["holder"] is not None:
        return f"attempt {work['attempt']}, held by {work['holder']}"
    ready = f", ready in {work['readyIn']:.1f} s" if work["readyIn"] > 0 else ""
    return f"waiting for a worker{ready}"
