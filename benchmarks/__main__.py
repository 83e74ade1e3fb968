"""`python -m benchmarks`: measures the promised figures on this machine."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from keelbolt.cli.main import Root
from keelbolt.cli.output import echo, print_table, progress

if TYPE_CHECKING:
    from benchmarks.report import Report

Command = TypeVar("Command", bound=Callable[..., Any])

MET = {True: "met", False: "missed", None: ""}


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Measure the promised figures on this machine.

    \b
    Example:
      python -m benchmarks storage --quick
    """


def figures(command: Command) -> Command:
    """Adds --json and --quick."""
    quick = click.option("--quick", is_flag=True, help="Small counts, for a short run; the figures vary more.")
    json_file = click.option(
        "--json",
        "json_file",
        type=click.Path(path_type=Path, dir_okay=False, writable=True),
        help="Write the figures here.",
    )
    return json_file(quick(command))


def url_option(text: str) -> Callable[[Command], Command]:
    return click.option("--url", help=f"{text}; without it, SQLite files in a temporary directory.")


def measure(name: str, json_file: Path | None, **options: Any) -> None:
    """Run the benchmark of this name, and print its figures."""
    run = import_module(f"benchmarks.{name}").run
    with progress("measuring") as tell:
        report = asyncio.run(run(**options, progress=tell))
    _print(report, json_file)


@main.command()
@click.option("--postgres", metavar="URL", help="Measure the agent on this PostgreSQL, too.")
@click.option("--redis", metavar="URL", help="Measure the agent on this Redis or Valkey, too.")
@figures
def compare(json_file: Path | None, **options: Any) -> None:
    """Measure our echo agent beside the floor, the least code that does the same work.

    The floor parses the request and returns a completed task; on SQLite it first writes one task row and two event rows
    in an fsynced group commit. Requests, CPU and p99 of both are measured in turn, then a stream of 8,000 chunks.

    \b
    Example:
      python -m benchmarks compare --quick
    """
    measure("compare", json_file, **options)


@main.command()
@click.option("--postgres", metavar="URL", help="Measure on this PostgreSQL, too; its database must be empty.")
@figures
def langgraph(json_file: Path | None, **options: Any) -> None:
    """Measure our LangGraph saver beside langgraph-checkpoint-sqlite and langgraph-checkpoint-postgres.

    Those that are installed are measured: pip install langgraph-checkpoint-sqlite langgraph-checkpoint-postgres
    'psycopg[binary]'.

    \b
    Example:
      python -m benchmarks langgraph --postgres postgresql://localhost/empty --quick
    """
    measure("langgraph", json_file, **options)


@main.command()
@url_option("The storage to measure")
@figures
def storage(json_file: Path | None, **options: Any) -> None:
    """Measure the storage: commits, logs, finds, blobs and wake-ups.

    Where possible, a target is a ratio of two measurements of the same run, so that it does not depend on the speed of
    the machine.

    \b
    Example:
      python -m benchmarks storage --url sqlite:///bench.db --json bench-storage.json
    """
    measure("storage", json_file, **options)


@main.command()
@url_option("An empty storage to copy into")
@figures
def copy(json_file: Path | None, **options: Any) -> None:
    """Measure copies: from SQLite into another storage, and into backups.

    \b
    Example:
      python -m benchmarks copy --url postgresql://localhost/empty --quick
    """
    measure("copy", json_file, **options)


@main.command()
@url_option("The storage to measure on")
@figures
def erase(json_file: Path | None, **options: Any) -> None:
    """Measure the erasure of a tenant with 1,000,000 records, beside writers of another tenant.

    \b
    Example:
      python -m benchmarks erase --quick
    """
    measure("erase", json_file, **options)


@main.command()
@figures
def scale(json_file: Path | None, **options: Any) -> None:
    """Measure an agent of several processes beside the same agent of one: CPU of a request, with the database's.

    Three processes on SQLite and, where PostgreSQL is installed, four on it.

    \b
    Example:
      python -m benchmarks scale --quick
    """
    measure("scale", json_file, **options)


@main.command()
@figures
def tasks(json_file: Path | None, **options: Any) -> None:
    """Measure the task engine: echoes, a long stream, lists and start-ups, on SQLite files and in memory.

    The engine is compared with the storage or the codec alone, for the same bytes, in the same run.

    \b
    Example:
      python -m benchmarks tasks --quick --json bench-tasks.json
    """
    measure("tasks", json_file, **options)


@main.command()
@url_option("The storage to measure on")
@figures
def server(json_file: Path | None, **options: Any) -> None:
    """Measure the server: requests, streams, idle streams, the card, the start.

    It is compared with a bare application that parses, commits and returns the same data.

    \b
    Example:
      python -m benchmarks server --quick
    """
    measure("server", json_file, **options)


@main.command()
@figures
def requests(json_file: Path | None, **options: Any) -> None:
    """Measure the cost of the largest requests: pauses of the event loop, and memory.

    The requests are those of the attack suite (tests/security), each of at most 10 MiB.

    \b
    Example:
      python -m benchmarks requests --quick
    """
    measure("requests", json_file, **options)


@main.command()
@url_option("The storage to measure on")
@figures
def grpc(json_file: Path | None, **options: Any) -> None:
    """Measure gRPC: SendMessage, beside JSON-RPC to the same agent in the same run.

    \b
    Example:
      python -m benchmarks grpc --quick
    """
    measure("grpc", json_file, **options)


@main.command()
@url_option("The storage to measure on")
@figures
def apcore(json_file: Path | None, **options: Any) -> None:
    """Measure agents of apcore modules: a call beside the executor alone, and the card.

    CPU of a SendMessage to an agent is compared with that of the same Executor.call_async without an agent: once as
    apcore comes (the targets are about that), and once through the views of an agent, in which JSON schemas are made
    once (the rest is protocol, tasks and storage). If apcore-a2a is installed, it serves the same module in the same
    run.

    \b
    Example:
      python -m benchmarks apcore --quick
    """
    measure("apcore", json_file, **options)


@main.command()
@figures
def client(json_file: Path | None, **options: Any) -> None:
    """Measure the client: calls beside bare calls with the same HTTP library and JSON, a stream, the import.

    \b
    Example:
      python -m benchmarks client --quick
    """
    measure("client", json_file, **options)


@main.command()
@url_option("The storage to measure on")
@figures
def webhooks(json_file: Path | None, **options: Any) -> None:
    """Measure webhooks: deliveries, latency from commit to POST, and the effect of a dead receiver on the others.

    They are compared with a bare loop of POSTs to the same receivers.

    \b
    Example:
      python -m benchmarks webhooks --quick
    """
    logging.getLogger("keelbolt.webhooks").setLevel(logging.ERROR)  # dead receivers are part of the benchmark
    measure("webhooks", json_file, **options)


@main.command()
@click.option(
    "--url", help="The storage to measure on; without it, SQLite files and, if there is one, a new PostgreSQL."
)
@figures
def state(json_file: Path | None, **options: Any) -> None:
    """Measure the StateStore: events, flows and a streamed answer of penguiflow, cursors, opening a session.

    The specification's sample stores (an INSERT for each event) and penguiflow's store in memory are measured beside
    it, in turns. Without penguiflow, its flows and planner are skipped.

    \b
    Example:
      python -m benchmarks state --quick
    """
    measure("state", json_file, **options)


@main.command()
@figures
def turns(json_file: Path | None, **options: Any) -> None:
    """Measure turns: the cost of storing them, concurrent turns, long threads, large media.

    \b
    Example:
      python -m benchmarks turns --quick
    """
    measure("turns", json_file, **options)


@main.command()
@figures
def explorer(json_file: Path | None, **options: Any) -> None:
    """Measure the explorer in a real browser: its weight, its first render, a task of 10,000 events, an idle page.

    Needs Playwright, and a Chromium on the path.

    \b
    Example:
      python -m benchmarks explorer --quick
    """
    measure("explorer", json_file, **options)


def _print(report: Report, json_file: Path | None) -> None:
    rows = [[each.name, three_digits(each.value), each.unit, each.target, MET[each.met]] for each in report.figures]
    print_table(["figure", ">value", "unit", "target", ""], rows)
    judged = [each.met for each in report.figures if each.met is not None]
    echo(f"{sum(judged)} of {len(judged)} targets met")
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=2) + "\n")


def three_digits(value: float) -> str:
    """Format a figure with decimals that match its noise."""
    decimals = next((n for n, least in enumerate((100, 10, 1)) if abs(value) >= least), 3)
    return f"{value:,.{decimals}f}"


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
