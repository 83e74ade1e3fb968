"""`keelbolt state export`, `import` and `views`: state as a file and back, state for SQL."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from keelbolt.cli.failure import Failure
from keelbolt.cli.options import storage_option
from keelbolt.cli.output import as_json, echo, escaped, print_json, print_table, progress
from keelbolt.cli.state import tenant_option
from keelbolt.cli.stores import opened
from keelbolt.errors import StateNotFound
from keelbolt.storage.private_files import create_private

if TYPE_CHECKING:
    from keelbolt.state.transfer import Imported
    from keelbolt.storage import Scope


@click.command("export")
@click.argument("id", metavar="[TRACE|SESSION]", required=False)
@storage_option()
@tenant_option
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="A file instead of standard output.")
def export(id: str | None, url: str, tenant: str, *, output: Path | None) -> None:  # noqa: A002
    """Write a session, a trace, or without either everything of the tenant, as lines of JSON.

    Values come back as they were, NUL and NaN included, also on another engine. A session goes with its traces, its
    artifacts and the memory whose key names it. Pauses stay, since each is taken once.

    \b
    Example:
      keelbolt state export session-1 --storage sqlite:///state.db --output session-1.jsonl
    """
    with _written(output) as write:
        count = asyncio.run(_export(url, tenant, id, write))
    if output is not None:
        echo(f"{count:,} lines written")


@contextmanager
def _written(output: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Writes into a new file, which is there when it is whole; or to standard output, with escapes in its JSON."""
    if output is None:
        yield lambda line: sys.stdout.buffer.write(escaped(line.decode()).encode())
        sys.stdout.buffer.flush()
        return
    try:
        file = os.fdopen(create_private(output), "wb")
    except OSError as error:
        raise Failure(f"{output} can't be written: {error.strerror}; name a new file") from None
    try:
        with file:
            yield file.write
    except BaseException:
        output.unlink()
        raise


@asynccontextmanager
async def _scope_at(url: str, tenant: str, *, create: bool = False) -> AsyncIterator[Scope]:
    """The state of this tenant."""
    from keelbolt.state.families import FAMILIES, partition_of

    async with await opened(url, create=create) as kernel:
        await kernel.declare(*FAMILIES)
        yield kernel.scoped(partition_of(tenant))


async def _export(url: str, tenant: str, id_: str | None, write: Callable[[bytes], object]) -> int:
    count = 0
    async with _scope_at(url, tenant) as scope:
        async for line in await _lines(scope, id_):
            write(line + b"\n")
            count += 1
    return count


async def _lines(scope: Scope, id_: str | None) -> AsyncIterator[bytes]:
    from keelbolt.state.inspection import SessionInspection, TraceInspection
    from keelbolt.state.names import name
    from keelbolt.state.transfer import export_session, export_tenant, export_trace

    if id_ is None:
        return export_tenant(scope)
    if await SessionInspection(scope).show(name(id_)) is not None:
        return export_session(scope, id_)
    if await TraceInspection(scope).show(name(id_)) is not None:
        return export_trace(scope, id_)
    raise StateNotFound(f"there is no session or trace {id_!r}; see keelbolt state sessions and traces")


@click.command("import")
@click.argument("file", type=click.File("rb"))
@storage_option()
@tenant_option
@as_json
def import_(file: BinaryIO, url: str, tenant: str, *, json_output: bool) -> None:
    """Take an export in; - reads standard input. A storage that is not there yet is made.

    What has the same ids is replaced, what is there already stays once, so that it can be done again.

    \b
    Example:
      keelbolt state import session-1.jsonl --storage postgresql://localhost/agents
    """
    imported = asyncio.run(_import(url, tenant, file))
    if json_output:
        print_json(dict(imported.kinds))
    else:
        rows = [[kind.replace("_", " "), f"{count:,}"] for kind, count in sorted(imported.kinds.items())]
        print_table(["imported", ">how many"], rows)


async def _import(url: str, tenant: str, file: BinaryIO) -> Imported:
    from keelbolt.state.transfer import import_state

    with progress("importing") as tell:
        async with _scope_at(url, tenant, create=True) as scope:
            return await import_state(scope, iter(file), tell=tell)


@click.command()
@storage_option()
@click.option("--drop", is_flag=True, help="Take the views away; what they show stays.")
def views(url: str, *, drop: bool) -> None:
    """Make views for people with sqlite3 or psql, named and shaped as the StateStore specification has its tables.

    flow_events, remote_bindings, planner_pauses, memory_states, task_states, state_updates, steering_events,
    trajectories, planner_events and artifacts; on PostgreSQL in the schema of the storage (keelbolt, unless its URL
    names another). They cost nothing until somebody reads them.

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
        echo(f"{len(NAMES)} views made: {', '.join(NAMES)}")
