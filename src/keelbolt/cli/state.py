"""`keelbolt state`: prints the history of traces like PenguiFlow's own command; lists, shows and cancels state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, TypeVar

import click

from keelbolt.cli.failure import Refused
from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.options import storage_option
from keelbolt.cli.output import as_json, echo, echo_json, print_json, print_table, size
from keelbolt.errors import MethodNotFoundError

Command = TypeVar("Command", bound=Callable[..., Any])

tenant_option = click.option(
    "--tenant",
    default="default",
    show_default=True,
    metavar="ID",
    envvar="KEELBOLT_STATE_TENANT",
    show_envvar=True,
    help="The tenant of the state store.",
)
tail_option = click.option("--tail", type=int, metavar="N", help="Only the last N events.")
whole_option = click.option(
    "--json", "json_output", is_flag=True, help="Print complete events, with the payload as a separate field."
)


def state_operates(command: Command) -> Command:
    """Add --storage, --server, --token and --tenant."""
    return operates(tenant_option(command))


@click.group()
def state() -> None:
    """Inspect the data that agents store with a StateStore.

    \b
    Example:
      keelbolt state sessions --storage sqlite:///state.db
    """


@state.command()
@click.argument("trace")
@state_operates
@tail_option
@click.option("--follow", is_flag=True, help="Print new events as they arrive, until Ctrl-C.")
@whole_option
def history(api: Operations, trace: str, tenant: str, *, tail: int | None, follow: bool, json_output: bool) -> None:
    """Print the events of a trace by time, one line of JSON each, like `penguiflow-admin history`.

    __global__ is the trace of events without a trace.

    \b
    Example:
      keelbolt state history 5f2c… --storage sqlite:///state.db --tail 20
    """
    lines = _lines(api, trace, tenant, tail, follow=follow, whole=json_output)
    with suppress(KeyboardInterrupt), closing(lines):
        for event in lines:
            echo_json(event["line"])


@state.command()
@click.argument("trace")
@state_operates
@tail_option
@click.option("--delay", type=float, default=0.0, show_default=True, help="Seconds to wait after each event.")
@whole_option
def replay(api: Operations, trace: str, tenant: str, *, tail: int | None, delay: float, json_output: bool) -> None:
    """Print a heading and the events of a trace, one by one, like `penguiflow-admin replay`.

    \b
    Example:
      keelbolt state replay 5f2c… --storage sqlite:///state.db --delay 0.2
    """
    with suppress(KeyboardInterrupt):
        events = list(_lines(api, trace, tenant, tail, whole=json_output))
        if not events:
            echo(f"# trace {trace} has no stored events")
            return
        echo(f"# replay trace={trace} events={len(events)}")
        for event in events:
            echo_json(event["line"])
            time.sleep(max(0.0, delay))


def _lines(
    api: Operations, trace: str, tenant: str, tail: int | None, *, follow: bool = False, whole: bool = False
) -> Any:
    from keelbolt.state.names import name

    last = None if tail is None else max(0, tail)
    query = {"tenant": tenant, "last": last, "follow": follow, "whole": whole}
    return api.events("GET", "state", "traces", name(trace), "history", **query)


# -------------------------------------------------------------------------------------------------- sessions and traces


WIDTH = 120  # characters per cell
KINDS = (("session", "sessions"), ("trace", "traces"), ("memory", "memory"), ("artifact", "artifacts"))

limit_option = click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of rows."
)


@state.command()
@state_operates
@limit_option
@as_json
def sessions(api: Operations, tenant: str, *, limit: int, json_output: bool) -> None:
    """List sessions, last used first, with their numbers of tasks, updates and steering events.

    \b
    Example:
      keelbolt state sessions --storage sqlite:///state.db
    """
    found, more = api.gather("sessions", limit, "state", "sessions", tenant=tenant)
    if json_output:
        print_json({"sessions": found, "more": more})
        return
    rows = [[each["id"], each["seen"] or "", *(f"{count:,}" for count in each["counts"].values())] for each in found]
    print_table(["session", "last used", ">tasks", ">updates", ">steering"], rows)


@state.command()
@state_operates
@limit_option
@as_json
def traces(api: Operations, tenant: str, *, limit: int, json_output: bool) -> None:
    """List traces, last used first.

    \b
    Example:
      keelbolt state traces --storage sqlite:///state.db --limit 10
    """
    found, more = api.gather("traces", limit, "state", "traces", tenant=tenant)
    if json_output:
        print_json({"traces": found, "more": more})
    else:
        print_table(["trace", "last used"], [[each["id"], each["seen"] or ""] for each in found])


@state.command()
@click.argument("id", metavar="SESSION|TRACE|KEY|ARTIFACT")
@state_operates
@as_json
def show(api: Operations, id: str, tenant: str, *, json_output: bool) -> None:  # noqa: A002  (the name of the argument)
    """Show a session, a trace, a memory state or an artifact: the first of these that has this id.

    Long lists and values are truncated; `keelbolt export` writes them in full.

    \b
    Example:
      keelbolt state show session-1 --storage sqlite:///state.db
    """
    from keelbolt.state.names import name

    for kind, path in KINDS:
        try:
            found = api.get("state", path, name(id), tenant=tenant)
        except MethodNotFoundError:
            continue
        if json_output:
            print_json({"kind": kind, **found})
        else:
            _print_item(kind, found)
        return
    raise Refused(
        f"no session, trace, memory state or artifact has the id {id!r}; list ids with keelbolt state sessions"
    )


def _print_item(kind: str, found: dict[str, Any]) -> None:
    lists = {name: value for name, value in found.items() if isinstance(value, list) and name != "more"}
    echo(f"{kind:<12}{found.get('id', found.get('key'))}")
    for name, value in found.items():
        if name not in lists and name not in ("id", "key", "ref", "more") and value is not None:
            echo(f"{name:<12}{size(value) if name == 'size' else _cell(value)}")
    more = found.get("more", ())
    for name, items in lists.items():
        if not items:
            continue
        rows = [_row(item) for item in items]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        title = f"{name} (there are more)" if name in more else name
        print_table(columns, [[_cell(row.get(column)) for column in columns] for row in rows], title=title)


def _row(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as a row: the data of a log entry, or the non-empty fields of any other item."""
    row = {"seq": item["seq"], "at": item["at"], **item["data"]} if "data" in item and "seq" in item else item
    hidden = ("ref", "sessionRef", "session_id", "context_snapshot", "sha256")
    return {name: value for name, value in row.items() if name not in hidden and value not in (None, "", {}, [])}


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


# --------------------------------------------------------------------------------------------------------------- pauses


@state.group()
def pauses() -> None:
    """List, show and cancel the pauses of planners. Listing and showing a pause does not take it.

    \b
    Example:
      keelbolt state pauses list --storage sqlite:///state.db
    """


@pauses.command("list")
@state_operates
@limit_option
@as_json
def list_(api: Operations, tenant: str, *, limit: int, json_output: bool) -> None:
    """List waiting pauses, newest first.

    \b
    Example:
      keelbolt state pauses list --storage sqlite:///state.db
    """
    found, more = api.gather("pauses", limit, "state", "pauses", tenant=tenant)
    if json_output:
        print_json({"pauses": found, "more": more})
        return
    rows = [
        [each["token"], each["reason"] or "", each["saved"] or "", each["expires"] or "", "leased" * each["leased"]]
        for each in found
    ]
    print_table(["token", "reason", "saved", "expires", ""], rows)


@pauses.command("show")
@click.argument("pause", metavar="TOKEN")
@state_operates
@as_json
def show_pause(api: Operations, pause: str, tenant: str, *, json_output: bool) -> None:
    """Show a waiting pause, without taking it.

    \b
    Example:
      keelbolt state pauses show 8c1f… --storage sqlite:///state.db
    """
    found = _call_pause(api, "GET", pause, tenant)
    if json_output:
        print_json(found)
        return
    for name in ("token", "reason", "saved", "expires", "leased"):
        echo(f"{name:<9}{'' if found[name] is None else found[name]}")
    echo("payload")
    print_json(found["payload"])


@pauses.command("cancel")
@click.argument("pause", metavar="TOKEN")
@state_operates
@as_json
def cancel(api: Operations, pause: str, tenant: str, *, json_output: bool) -> None:
    """Remove a waiting pause, so that it can't be resumed.

    \b
    Example:
      keelbolt state pauses cancel 8c1f… --storage sqlite:///state.db
    """
    found = _call_pause(api, "DELETE", pause, tenant)
    if json_output:
        print_json(found)
    else:
        echo(f"cancelled {pause}")


def _call_pause(api: Operations, method: str, token: str, tenant: str) -> Any:
    from keelbolt.state.names import name

    try:
        return api.call(method, ("state", "pauses", name(token)), {"tenant": tenant})
    except MethodNotFoundError:
        raise Refused(f"no waiting pause has the token {token!r}; list them with keelbolt state pauses list") from None


# ---------------------------------------------------------------------------------------------------------------- views


@state.command()
@storage_option()
@click.option("--drop", is_flag=True, help="Drop the views; the data stays.")
def views(url: str, *, drop: bool) -> None:
    """Create SQL views with the table names and columns of the StateStore specification.

    The views are flow_events, remote_bindings, planner_pauses, memory_states, task_states, state_updates,
    steering_events, trajectories, planner_events and artifacts; on PostgreSQL in the schema of the storage (keelbolt,
    unless its URL names another). They cost nothing until they are read, for example with sqlite3 or psql.

    \b
    Example:
      keelbolt state views --storage sqlite:///state.db
    """
    from keelbolt.state.views import NAMES, create_views, drop_views

    if drop:
        drop_views(url)
        echo(f"{len(NAMES)} views dropped")
    else:
        create_views(url)
        echo(f"{len(NAMES)} views created: {', '.join(NAMES)}")
