"""`keelbolt data`: lists, shows and counts stored data of all faces, from the declarations of their families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.output import as_json, echo, print_json, print_table, size
from keelbolt.cli.subjects import subject_of, subject_options

ANY = " or none"


@click.group()
def data() -> None:
    """List, show and count the data of the agent server, the state store, the turn runner and the adapters.

    A family is one kind of record, such as tasks, langgraph_checkpoints or openai_sessions. A subject is a task,
    context, session, thread, user or tenant.

    \b
    Example:
      keelbolt data list --storage sqlite:///agent.db
    """


@data.command("list")
@click.argument("family", required=False)
@operates
@subject_options
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of rows.")
@as_json
def list_(
    api: Operations,
    family: str | None,
    *,
    tenant: str,
    owner: str,
    limit: int,
    json_output: bool,
    **named: str | None,
) -> None:
    """List the families, or the records of a family, newest first; with a subject, only its records.

    \b
    Example:
      keelbolt data list langgraph_checkpoints --thread t-1 --storage sqlite:///agent.db
    """
    if family is None:
        families = api.get("data", "families")
        if json_output:
            print_json(families)
            return
        rows = [
            [each["face"], each["family"], each["title"], ", ".join(each["kinds"])] for each in families["families"]
        ]
        print_table(["face", "family", "title", "subjects"], rows)
        return
    query = _query(named, tenant, owner)
    records, more = api.gather("records", limit, "data", "families", family, "records", **query)
    if json_output:
        print_json({"records": records, "more": more})
        return
    rows = [[each["id"], each["partition"], each["updated"] or "", size(each["size"]), each["ref"]] for each in records]
    print_table(["id", "owner", "updated", ">size", "ref"], rows)
    if more:
        echo("there are more; use a larger --limit")


@data.command()
@click.argument("ref", required=False)
@operates
@subject_options
@as_json
def show(api: Operations, ref: str | None, *, tenant: str, owner: str, json_output: bool, **named: str | None) -> None:
    """Show a record by the REF that `keelbolt data list` prints; or a subject, with its number of records.

    Long values are truncated; `keelbolt export` writes them in full.

    \b
    Example:
      keelbolt data show --session session-1 --storage sqlite:///agent.db
    """
    query = _query(named, tenant, owner)
    if (ref is None) == (not query):
        raise click.UsageError("name a REF or one subject")
    found = api.get("data", "records", ref) if ref is not None else api.get("data", "subject", **query)
    if json_output or ref is not None:
        print_json(found)
        return
    for part in found["found"]:
        echo(f"{found['kind']} {found['id']} of {part['face']}, in {part['partition']}", bold=True)
        if part["record"] is not None:
            print_json(part["record"]["value"])
        rows = [[each["family"], each["title"], _number(each)] for each in part["members"]]
        if rows:
            print_table(["family", "title", ">count"], rows)


@data.command()
@click.argument("family", required=False)
@operates
@subject_options
@as_json
def count(
    api: Operations, family: str | None, *, tenant: str, owner: str, json_output: bool, **named: str | None
) -> None:
    """Count the records of a family, or of all families; with a subject, only its records.

    \b
    Example:
      keelbolt data count --tenant acme --storage sqlite:///agent.db
    """
    query = _query(named, tenant, owner)
    if family is not None:
        names = [family]
    else:
        listed = api.get("data", "families")["families"]
        names = [each["family"] for each in listed if each["whole"] or query]
    counts = [api.get("data", "families", name, "count", **query) for name in names]
    if json_output:
        print_json({"counts": counts})
    else:
        rows = [[each["family"], each["title"], _number(each)] for each in counts if each["count"] or family]
        print_table(["family", "title", ">count"], rows)


def _query(named: Mapping[str, str | None], tenant: str, owner: str) -> dict[str, str]:
    """Return the subject in the options as a query of a route; empty if they name none."""
    subject = subject_of(named, tenant, owner, more=ANY)
    if subject is None:
        return {"owner": owner} if owner else {}
    given = {"kind": subject.kind, "id": subject.id, "tenant": subject.tenant, "owner": subject.owner}
    return {name: text for name, text in given.items() if text}


def _number(count: Mapping[str, Any]) -> str:
    return f"{count['count']:,}{'' if count['exact'] else ' or more'}"
