"""`keelbolt state pauses`: lists, shows and cancels pauses that wait for a resume."""

from __future__ import annotations

from typing import Any

import click

from keelbolt.cli.failure import Refused
from keelbolt.cli.operations import Operations
from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.state import state_operates
from keelbolt.cli.state_look import limit_option
from keelbolt.errors import MethodNotFoundError


@click.group()
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
