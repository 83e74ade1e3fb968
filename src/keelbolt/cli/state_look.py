"""`keelbolt state sessions`, `traces` and `show`: which there are, and one of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from keelbolt.cli.output import as_json, echo, print_json, print_table, size
from keelbolt.cli.state import scope_at, where
from keelbolt.errors import StateNotFound

WIDTH = 120  # characters of a cell
PAGE = 100

limit_option = click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many.")


@click.command()
@where
@limit_option
@as_json
def sessions(url: str, tenant: str, *, limit: int, json_output: bool) -> None:
    """List sessions, those in use last first, with how much each has.

    \b
    Example:
      keelbolt state sessions --url sqlite:///state.db
    """
    found = asyncio.run(_listed(url, tenant, "sessions", limit))
    if json_output:
        print_json({"sessions": found})
        return
    rows = [[each["id"], each["seen"] or "", *(f"{count:,}" for count in each["counts"].values())] for each in found]
    print_table(["session", "in use", ">tasks", ">updates", ">steering"], rows)


@click.command()
@where
@limit_option
@as_json
def traces(url: str, tenant: str, *, limit: int, json_output: bool) -> None:
    """List traces, those in use last first.

    \b
    Example:
      keelbolt state traces --url sqlite:///state.db --limit 10
    """
    found = asyncio.run(_listed(url, tenant, "traces", limit))
    if json_output:
        print_json({"traces": found})
    else:
        print_table(["trace", "in use"], [[each["id"], each["seen"] or ""] for each in found])


async def _listed(url: str, tenant: str, name: str, limit: int) -> list[dict[str, Any]]:
    from keelbolt.state.inspection import Lists

    found: list[dict[str, Any]] = []
    cursor: str | None = None
    async with scope_at(url, tenant) as scope:
        list_page = getattr(Lists(scope), name)
        while len(found) < limit:
            page = await list_page(limit=min(PAGE, limit - len(found)), cursor=cursor)
            found += page[name]
            cursor = page["nextPageToken"] or None
            if cursor is None:
                break
    return found


@click.command()
@click.argument("id", metavar="SESSION|TRACE|KEY|ARTIFACT")
@where
@as_json
def show(id: str, url: str, tenant: str, *, json_output: bool) -> None:  # noqa: A002  (what is asked for)
    """Show a session, a trace, a memory state or an artifact: the first of these that has this id.

    Long lists and long values are cut; `keelbolt export` has them whole.

    \b
    Example:
      keelbolt state show session-1 --url sqlite:///state.db
    """
    kind, found = asyncio.run(_look(url, tenant, id))
    if json_output:
        print_json({"kind": kind, **found})
    else:
        _print(kind, found)


async def _look(url: str, tenant: str, id_: str) -> tuple[str, dict[str, Any]]:
    from keelbolt.state.inspection import ArtifactInspection, Lists, SessionInspection, TraceInspection
    from keelbolt.state.names import name

    async with scope_at(url, tenant) as scope:
        for kind, look in (
            ("session", SessionInspection(scope).show),
            ("trace", TraceInspection(scope).show),
            ("memory", Lists(scope).memory),
            ("artifact", ArtifactInspection(scope).show),
        ):
            if (found := await look(name(id_))) is not None:
                return kind, found
    raise StateNotFound(f"there is no session, trace, memory state or artifact {id_!r}; see keelbolt state sessions")


def _print(kind: str, found: dict[str, Any]) -> None:
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
    """An item as a row: of an entry of a log its data, of anything else what says something."""
    row = {"seq": item["seq"], "at": item["at"], **item["data"]} if "data" in item and "seq" in item else item
    hidden = ("ref", "sessionRef", "session_id", "context_snapshot", "sha256")
    return {name: value for name, value in row.items() if name not in hidden and value not in (None, "", {}, [])}


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
