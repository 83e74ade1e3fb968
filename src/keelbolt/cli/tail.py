"""`keelbolt tasks tail`: follows a running task, in any process."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from typing import Any

import click

from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.options import whose
from keelbolt.cli.output import echo, echo_json, print_traceback

WIDTH = 200  # characters per line of text


@click.command()
@click.argument("task")
@operates
@whose
@click.option("--after", type=click.IntRange(0), metavar="SEQ", help="Start after this entry; 0: from the beginning.")
@click.option("--json", "json_output", is_flag=True, help="Print a JSON object per line.")
def tail(api: Operations, task: str, *, owner: str, tenant: str, after: int | None, json_output: bool) -> None:
    """Follow a task, until it ends or Ctrl-C.

    Starts with the current state of the task, or with --after at that entry of its log. If retention has removed that
    entry, a line reports the gap, with the current state of the task.

    \b
    Example:
      keelbolt tasks tail 0198c2f4-7d6b-7000-8000-0123456789ab --storage sqlite:///agent.db --after 0
    """
    followed = api.events("GET", "tasks", task, "events", owner=owner, tenant=tenant, after=after)
    with suppress(KeyboardInterrupt), closing(followed):
        for event in followed:
            if json_output:
                echo_json(json.dumps(event, ensure_ascii=False))
                continue
            echo(_event_line(event))
            if event.get("kind") == "error" and "traceback" in event["data"]:
                print_traceback(event["data"]["traceback"])


def _event_line(event: dict[str, Any]) -> str:
    if "snapshot" in event:
        status = event["snapshot"]["status"]
        words = "gap: older entries were removed; the task is" if event["gap"] else "the task is"
        return f"{event['seq']:>6}  {words} {_status_text(status)}  {_parts_text(status.get('message', {}))}".rstrip()
    return f"{event['seq']:>6}  {event['at']}  {event['kind']:<8}  {_event_text(event['kind'], event['data'])}".rstrip()


def _event_text(kind: str, data: dict[str, Any]) -> str:
    match kind:
        case "message":
            return _parts_text(data)
        case "status" | "said":
            return f"{_status_text(data['status'])}  {_parts_text(data['status'].get('message', {}))}"
        case "artifact":
            return f"{data['artifact']['artifactId']}  {_parts_text(data['artifact'])}"
        case "error":
            return _short(f"{data.get('type', 'error')}: {data.get('message', 'shown to operators')}")
        case _:
            return _short(json.dumps(data, ensure_ascii=False))


def _status_text(status: dict[str, Any]) -> str:
    state: str = status["state"]
    return state.removeprefix("TASK_STATE_").lower()


def _parts_text(holder: dict[str, Any]) -> str:
    return _short(" ".join(part.get("text") or f"[{next(iter(part), '')}]" for part in holder.get("parts", [])))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
