"""`keelbolt tasks tail`: follow a task while it runs, anywhere."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.engine import engine_at, principal_of, storage_option, whose
from keelbolt.cli.output import echo, print_traceback
from keelbolt.cli.remote import or_server, tail_task

if TYPE_CHECKING:
    from keelbolt.storage import Entry
    from keelbolt.tasks.events import Snapshot
    from keelbolt.tasks.store import TaskStore

WIDTH = 200  # characters of a line of text


@click.command()
@click.argument("task")
@or_server(tail_task)
@storage_option
@whose
@click.option("--after", type=click.IntRange(0), metavar="SEQ", help="Go on after this entry; 0: from the beginning.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON, an object per line, for programs.")
def tail(task: str, url: str, *, owner: str, tenant: str, after: int | None, json_output: bool) -> None:
    """Follow a task, until it ends or Ctrl-C.

    Begins with the task as it is now, or with --after at that entry of its log. When that lies below what retention has
    left, a line says that there is a gap, with the task as it is now.

    \b
    Example:
      keelbolt tasks tail 0198c2f4-7d6b-7000-8000-0123456789ab --storage sqlite:///agent.db --after 0
    """
    with suppress(KeyboardInterrupt):
        asyncio.run(_tail(url, owner, tenant, task, after, json_output=json_output))


async def _tail(url: str, owner: str, tenant: str, task: str, after: int | None, *, json_output: bool) -> None:
    from keelbolt.tasks.events import Snapshot

    async with engine_at(url) as engine:
        followed = engine.tasks.follow(task, principal_of(owner, tenant), after=after)
        async with aclosing(followed):
            async for event in followed:
                if isinstance(event, Snapshot):
                    line = await _snapshot(engine.store, event)
                else:
                    line = {"seq": event.seq, "kind": event.kind, "at": event.at, "data": json.loads(event.data)}
                echo(json.dumps(line) if json_output else _text(event, line))
                if not json_output and line.get("kind") == "error":
                    print_traceback(line["data"]["traceback"])


async def _snapshot(store: TaskStore, event: Snapshot) -> dict[str, Any]:
    return {"seq": event.seq, "gap": event.gap, "task": json.loads(await store.task_json(event.task))}


def _text(event: Entry | Snapshot, line: dict[str, Any]) -> str:
    from keelbolt.protocol.types import timestamp
    from keelbolt.storage import Entry

    if not isinstance(event, Entry):
        state = event.task.view.state.name
        words = "a gap: older entries were trimmed; now it is" if event.gap else "it is"
        return f"{event.seq:>6}  {words} {state}  {_parts(line['task']['status'].get('message', {}))}".rstrip()
    return f"{event.seq:>6}  {timestamp(event.at)}  {event.kind:<8}  {_about(event.kind, line['data'])}".rstrip()


def _about(kind: str, data: dict[str, Any]) -> str:
    match kind:
        case "message":
            return _parts(data)
        case "status" | "said":
            status = data["status"]
            state = status["state"].removeprefix("TASK_STATE_").lower()
            return f"{state}  {_parts(status.get('message', {}))}"
        case "artifact":
            return f"{data['artifact']['artifactId']}  {_parts(data['artifact'])}"
        case "error":
            return _short(f"{data['type']}: {data['message']}")
        case _:
            return _short(json.dumps(data, ensure_ascii=False))


def _parts(holder: dict[str, Any]) -> str:
    return _short(" ".join(part.get("text") or f"[{next(iter(part), '')}]" for part in holder.get("parts", [])))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
