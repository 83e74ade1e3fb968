"""`keelbolt state`: the history of traces, as PenguiFlow's own command prints it; the other commands are beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from keelbolt.cli.failure import WrongConfiguration
from keelbolt.cli.output import echo, echo_json
from keelbolt.cli.stores import opened
from keelbolt.errors import KeelboltError

if TYPE_CHECKING:
    from keelbolt.storage import Kernel, Scope

Command = TypeVar("Command", bound=Callable[..., Any])

url_option = click.option(
    "--url",
    required=True,
    envvar="KEELBOLT_STATE_URL",
    show_envvar=True,
    help="Where the state is: sqlite:///state.db, postgresql://… or redis://…",
)
tenant_option = click.option(
    "--tenant",
    default="default",
    show_default=True,
    envvar="KEELBOLT_STATE_TENANT",
    show_envvar=True,
    help="The tenant of the state store.",
)
tail_option = click.option("--tail", type=int, metavar="N", help="Only the last N events.")


def where(command: Command) -> Command:
    """Adds --url and --tenant."""
    return url_option(tenant_option(command))


@asynccontextmanager
async def state_at(url: str, *, create: bool = False) -> AsyncIterator[Kernel]:
    """The storage at this URL, which knows what stores keep."""
    from keelbolt.state.families import FAMILIES

    async with await opened(url, create=create) as kernel:
        await kernel.declare(*FAMILIES)
        yield kernel


@asynccontextmanager
async def scope_at(url: str, tenant: str, *, create: bool = False) -> AsyncIterator[Scope]:
    """The state of this tenant."""
    async with state_at(url, create=create) as kernel:
        yield kernel.scoped(partition_at(tenant))


def partition_at(tenant: str) -> str:
    from keelbolt.state.families import partition_of

    return partition_of(tenant)


@click.group()
def state() -> None:
    """Look at the state that agents keep with a StateStore, and let old state go.

    \b
    Example:
      keelbolt state sessions --url sqlite:///state.db
    """


@state.command()
@click.argument("trace")
@where
@tail_option
@click.option("--follow", is_flag=True, help="Go on with new events as they come, until Ctrl-C.")
@click.option("--json", "json_output", is_flag=True, help="Print each event whole, its payload apart from its fields.")
def history(trace: str, url: str, tenant: str, *, tail: int | None, follow: bool, json_output: bool) -> None:
    """Print the events of a trace, a line of JSON for each, by time.

    Prints what `penguiflow-admin history` prints, and ends with 1 on errors, as it does. __global__ is the trace of
    events that belong to none.

    \b
    Example:
      keelbolt state history 5f2c… --url sqlite:///state.db --tail 20
    """

    async def run() -> None:
        shape = _whole if json_output else _flat
        async with scope_at(url, tenant) as scope:
            told = _Told()
            _print(map(shape, _last(await told.history(scope, trace), tail)))
            if follow:
                async for events in told.more(scope, trace):
                    _print(map(shape, events))

    _run(run())


@state.command()
@click.argument("trace")
@where
@tail_option
@click.option("--delay", type=float, default=0.0, show_default=True, help="Seconds to wait after each event.")
@click.option("--json", "json_output", is_flag=True, help="Print each event whole, its payload apart from its fields.")
def replay(trace: str, url: str, tenant: str, *, tail: int | None, delay: float, json_output: bool) -> None:
    """Print the events of a trace one by one, as they once came.

    Prints what `penguiflow-admin replay` prints, and ends with 1 on errors, as it does.

    \b
    Example:
      keelbolt state replay 5f2c… --url sqlite:///state.db --delay 0.2
    """

    async def run() -> None:
        async with scope_at(url, tenant) as scope:
            events = _last(await _Told().history(scope, trace), tail)
        if not events:
            echo(f"# trace {trace} has no stored events")
            return
        echo(f"# replay trace={trace} events={len(events)}")
        for event in events:
            _print([(_whole if json_output else _flat)(event)])
            if delay > 0:
                await asyncio.sleep(delay)

    _run(run())


class _Told:
    """Which events were printed, so that a repeat is not."""

    def __init__(self) -> None:
        self._marks: set[bytes] = set()
        self._after = 0

    async def history(self, scope: Scope, trace: str) -> list[dict[str, Any]]:
        """Everything until now, by time."""
        from keelbolt.state.events import by_time
        from keelbolt.state.families import EVENTS
        from keelbolt.state.names import name
        from keelbolt.state.streams import items_of, read_all

        entries = await read_all(scope, EVENTS, name(trace))
        self._after = entries[-1].seq if entries else (await scope.log_state(EVENTS, name(trace))).head
        return sorted(self._new(item for entry in entries for item in items_of(entry)), key=by_time)

    async def more(self, scope: Scope, trace: str) -> AsyncIterator[list[dict[str, Any]]]:
        """What comes after it, as it comes."""
        from keelbolt.state.families import EVENTS
        from keelbolt.state.names import name
        from keelbolt.state.streams import items_of

        async for entry in scope.tail(EVENTS, name(trace), after=self._after):
            yield self._new(items_of(entry))

    def _new(self, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        from keelbolt.state.events import PRINTED
        from keelbolt.state.streams import once

        return once(items, *PRINTED, seen=self._marks)


def _last(events: list[dict[str, Any]], tail: int | None) -> list[dict[str, Any]]:
    if tail is None:
        return events
    return events[-tail:] if tail > 0 else []


def _flat(event: dict[str, Any]) -> dict[str, Any]:
    """The payload, with the fields of the event where it has none of the same name."""
    fields = {"event": event["kind"], **{name: event[name] for name in ("trace_id", "node_name", "node_id", "ts")}}
    return {**fields, **event["payload"]}


def _whole(event: dict[str, Any]) -> dict[str, Any]:
    return event


def _print(events: Iterable[dict[str, Any]]) -> None:
    for event in events:
        echo_json(json.dumps(event, sort_keys=True, default=str))


def _run(work: Any) -> None:
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(work)
    except (KeelboltError, TypeError, ValueError) as error:
        raise WrongConfiguration(str(error)) from error
