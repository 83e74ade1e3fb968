"""`keelbolt state sessions`, `traces` and `show`: lists sessions and traces, and shows one item."""

from __future__ import annotations

import json
from typing import Any

import click

from keelbolt.cli.failure import Refused
from keelbolt.cli.operations import Operations
from keelbolt.cli.output import as_json, echo, print_json, print_table, size
from keelbolt.cli.state import state_operates
from keelbolt.errors import MethodNotFoundError

WIDTH = 120  # characters per cell
KINDS = (("session", "sessions"), ("trace", "traces"), ("memory", "memory"), ("artifact", "artifacts"))

limit_option = click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of rows."
)


@click.command()
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


@click.command()
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


@click.command()
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
