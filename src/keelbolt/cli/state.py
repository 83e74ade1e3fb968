"""`keelbolt state`: prints the history of traces like PenguiFlow's own command; other modules add more commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, TypeVar

import click

from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.output import echo, echo_json

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
