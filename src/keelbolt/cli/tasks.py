"""`keelbolt tasks`: inspects and manages tasks like their owners, on a storage or a running agent."""

from __future__ import annotations

import json
import time
from contextlib import closing, suppress
from typing import Any

import click

from keelbolt.cli.failure import REFUSED
from keelbolt.cli.operations import Operations, operates, operates_or_creates
from keelbolt.cli.options import STATES, whose, whose_or_all
from keelbolt.cli.output import ago, as_json, coloured, echo, echo_json, print_json, print_table, print_traceback
from keelbolt.errors import TaskNotFoundError

POLL_SECONDS = 0.2


@click.group()
def tasks() -> None:
    """List, show, send, follow, cancel, steer, fork, requeue and erase tasks.

    --owner and --tenant select the owner of the tasks. The default owner is the anonymous caller (--storage), or the
    caller of --token (--server).

    \b
    Example:
      keelbolt tasks list --storage sqlite:///agent.db --state working
    """


@tasks.command("list")
@operates
@whose_or_all
@click.option("--state", type=click.Choice(STATES), help="Only tasks in this state.")
@click.option("--context", metavar="ID", help="Only tasks of this context.")
@click.option("--search", metavar="WORDS", help="Only tasks with these words in their messages or results.")
@click.option(
    "--sort",
    type=click.Choice(("-updated", "updated")),
    help="By the time of the last status: newest first (default) or oldest first.",
)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Maximum number of rows.")
@click.option("--page", metavar="TOKEN", help="The next page: the token from the end of the previous page.")
@as_json
def list_(
    api: Operations,
    *,
    whose: dict[str, Any],
    state: str | None,
    context: str | None,
    search: str | None,
    sort: str | None,
    limit: int,
    page: str | None,
    json_output: bool,
) -> None:
    """List tasks, newest status first unless sorted: id, state, age of the state, and the start of the first message.

    \b
    Example:
      keelbolt tasks list --storage sqlite:///agent.db --all --state failed
    """
    asked = {"state": state, "context": context, "q": search, "sort": sort, "pageSize": limit, "pageToken": page}
    found = api.get("tasks", **whose, **asked)
    if json_output:
        print_json(found)
        return
    rows = [
        [
            task["id"],
            coloured(state_of(task)),
            ago(task["status"]["timestamp"]),
            f"{task['partition']}: {task['said']}" if whose["all"] else task["said"],
        ]
        for task in found["tasks"]
    ]
    print_table(["task", "state", ">age", "about"], rows, cut=True)
    if found["nextPageToken"]:
        echo(f"there are more: --page {found['nextPageToken']}")


@tasks.command()
@operates_or_creates
@whose
@click.option("--text", required=True, help="The text of the message.")
@click.option("--task", metavar="ID", help="Continue this task instead of creating one.")
@click.option("--context", metavar="ID", help="The context of the new task.")
@click.option("--wait", type=float, default=0.0, metavar="SECONDS", help="Maximum time to wait for the result.")
@as_json
def send(
    api: Operations,
    *,
    owner: str,
    tenant: str,
    text: str,
    task: str | None,
    context: str | None,
    wait: float,
    json_output: bool,
) -> None:
    """Send a text message as an owner, for operators: it creates a task, which a worker on the same storage runs.

    Clients of an agent use `keelbolt send URL`.

    \b
    Example:
      keelbolt tasks send --storage sqlite:///agent.db --text "Hello" --wait 10
    """
    body = {name: value for name, value in (("text", text), ("task", task), ("context", context)) if value is not None}
    found = api.post("tasks", owner=owner, tenant=tenant, body=body)
    ends = time.monotonic() + wait
    while state_of(found) in ("submitted", "working") and (left := ends - time.monotonic()) > 0:
        time.sleep(min(POLL_SECONDS, left))
        found = api.get("tasks", found["id"], owner=owner, tenant=tenant)["task"]
    _print_task(found, json_output=json_output)


@tasks.command()
@click.argument("task")
@operates
@whose
@click.option("--reason", default="", help="The reason, stored in the task's log.")
@as_json
def cancel(api: Operations, task: str, *, owner: str, tenant: str, reason: str, json_output: bool) -> None:
    """Cancel a task in any process, and wait a few seconds for its worker to stop.

    \b
    Example:
      keelbolt tasks cancel 0198c2f4-7d6b-7000-8000-0123456789ab --storage sqlite:///agent.db
    """
    found = api.post("tasks", task, "cancel", owner=owner, tenant=tenant, body={"reason": reason})
    _print_task(found, json_output=json_output)
    if not json_output and state_of(found) in ("submitted", "working"):
        echo("cancellation requested; the worker is stopped if it does not end soon")


@tasks.command()
@click.argument("task")
@operates
@whose
@as_json
def requeue(api: Operations, task: str, *, owner: str, tenant: str, json_output: bool) -> None:
    """Retry a task that failed, was rejected or was canceled.

    The old task does not change: its last message creates a new task in the same context, which refers to the old one.
    A dead letter of the old task is removed. A second requeue returns the same new task.

    \b
    Example:
      keelbolt tasks requeue 0198c2f4-7d6b-7000-8000-0123456789ab --storage sqlite:///agent.db
    """
    found = api.post("tasks", task, "requeue", owner=owner, tenant=tenant)
    if json_output:
        print_json(found)
    else:
        echo(f"retried as task {found['taskId']}")


@tasks.command()
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@operates
@whose
@click.option("--context", metavar="ID", help="All tasks of this context, and the data that the worker stored for it.")
@click.option("--everything", is_flag=True, help="All tasks and contexts of the owner.")
@click.option("--yes", is_flag=True, help="Erase everything without confirmation.")
@as_json
def erase(
    api: Operations,
    tasks: tuple[str, ...],
    *,
    owner: str,
    tenant: str,
    context: str | None,
    everything: bool,
    yes: bool,
    json_output: bool,
) -> None:
    """Permanently erase tasks in any state: record, log, artifacts and messages. A running task is stopped.

    The exit code is 3 if one of the tasks does not exist; the others are erased.

    \b
    Example:
      keelbolt tasks erase --context talk-17 --owner alice --storage sqlite:///agent.db
    """
    if sum((bool(tasks), context is not None, everything)) != 1:
        raise click.UsageError("name tasks, or use --context ID or --everything")
    ours = {"owner": owner, "tenant": tenant}
    if everything and not yes:
        click.confirm(f"Erase all tasks of {owner or 'anonymous callers'}?", abort=True, err=True)
    if tasks:
        count = sum(deleted(api, "erased", "tasks", task, **ours) for task in tasks)
    else:
        count = api.delete("tasks", **ours, context=context, everything=everything)["erased"]
    if json_output:
        print_json({"erased": count})
    else:
        echo(f"erased {count:,} task(s)")
    if count < len(tasks):
        raise SystemExit(REFUSED)


def deleted(api: Operations, name: str, *path: str, **query: Any) -> int:
    """Delete something of a task; return the count under this name in the response, or 0 if the task does not exist."""
    try:
        count: int = api.delete(*path, **query)[name]
    except TaskNotFoundError:
        return 0
    return count


def state_of(task: dict[str, Any]) -> str:
    state: str = task["status"]["state"]
    return state.removeprefix("TASK_STATE_").lower()


def _print_task(task: dict[str, Any], *, json_output: bool) -> None:
    """Print the task as protocol JSON, or its state and text."""
    if json_output:
        print_json(task)
        return
    echo(f"task {task['id']} is {state_of(task)}")
    for holder in (*task.get("artifacts", []), task["status"].get("message", {})):
        if words := "".join(part.get("text", "") for part in holder.get("parts", [])):
            echo(words)


# ----------------------------------------------------------------------------------------------------------------- show


@tasks.command()
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


# ----------------------------------------------------------------------------------------------------------------- tail


WIDTH = 200  # characters per line of text


@tasks.command()
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


# ---------------------------------------------------------------------------------------------------------------- steer


STEERING = ("inject", "redirect", "pause", "resume", "prioritise")


@tasks.command()
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


@tasks.command()
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
