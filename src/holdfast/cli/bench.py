"""`holdfast bench`: measure on this machine what is promised."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import print_table, progress

if TYPE_CHECKING:
    from holdfast.bench.report import Report

MET = {True: "met", False: "missed", None: ""}


@click.group()
def bench() -> None:
    """Measure on this machine what is promised.

    \b
    Example:
      holdfast bench storage --quick
    """


@bench.command()
@click.option("--url", help="The storage to measure; without it, a SQLite file in a temporary directory.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the figures here.",
)
@click.option("--quick", is_flag=True, help="Small counts, for a first look; the figures vary more.")
def storage(url: str | None, json_file: Path | None, quick: bool) -> None:
    """Measure the storage: commits, logs, finds, blobs and wake-ups.

    A target is a ratio of two things that are measured in the same run, wherever that is possible, so that it does
    not depend on how fast the machine is.

    \b
    Example:
      holdfast bench storage --url sqlite:///bench.db --json bench-storage.json
    """
    from holdfast.bench.storage import run

    with progress("measuring") as tell:
        report = asyncio.run(run(url, quick=quick, progress=tell))
    _print(report, json_file)


@bench.command()
@click.option("--url", help="An empty storage to copy into; without it, a SQLite file in a temporary directory.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the figures here.",
)
@click.option("--quick", is_flag=True, help="Small counts, for a first look; the figures vary more.")
def copy(url: str | None, json_file: Path | None, quick: bool) -> None:
    """Measure copies: from SQLite into another storage, into backups, and a move beside writers.

    \b
    Example:
      holdfast bench copy --url postgresql://localhost/empty --quick
    """
    from holdfast.bench.copy import run

    with progress("measuring") as tell:
        report = asyncio.run(run(url, quick=quick, progress=tell))
    _print(report, json_file)


@bench.command()
@click.option("--url", help="The storage to measure on; without it, SQLite files in a temporary directory.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the figures here.",
)
@click.option("--quick", is_flag=True, help="Small counts, for a first look; the figures vary more.")
def server(url: str | None, json_file: Path | None, quick: bool) -> None:
    """Measure the server: requests, streams, idle streams, the card, the start.

    A bare application that parses, commits and answers the same is measured beside it.

    \b
    Example:
      holdfast bench server --quick
    """
    from holdfast.bench.server import run

    with progress("measuring") as tell:
        report = asyncio.run(run(url, quick=quick, progress=tell))
    _print(report, json_file)


@bench.command()
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the figures here.",
)
@click.option("--quick", is_flag=True, help="Small counts, for a first look; the figures vary more.")
def tasks(json_file: Path | None, quick: bool) -> None:
    """Measure the task engine: echoes, a long stream, lists and start-ups, on SQLite files and in memory.

    What the engine does is set against what the storage or the codec alone takes for the same bytes, in the same run.

    \b
    Example:
      holdfast bench tasks --quick --json bench-tasks.json
    """
    from holdfast.bench.tasks import run

    with progress("measuring") as tell:
        report = asyncio.run(run(quick=quick, progress=tell))
    _print(report, json_file)


@bench.command()
@click.option("--url", help="The storage to measure on; without it, a SQLite file in a temporary directory.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the figures here.",
)
@click.option("--quick", is_flag=True, help="Small counts, for a first look; the figures vary more.")
def grpc(url: str | None, json_file: Path | None, quick: bool) -> None:
    """Measure gRPC: SendMessage, beside JSON-RPC to the same agent in the same run.

    \b
    Example:
      holdfast bench grpc --quick
    """
    from holdfast.bench.grpc import run

    with progress("measuring") as tell:
        report = asyncio.run(run(url, quick=quick, progress=tell))
    _print(report, json_file)


@bench.command()
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the figures here.",
)
@click.option("--quick", is_flag=True, help="Small counts, for a first look; the figures vary more.")
def client(json_file: Path | None, quick: bool) -> None:
    """Measure the client: calls beside bare calls with the same HTTP library and JSON, a stream, the import.

    \b
    Example:
      holdfast bench client --quick
    """
    from holdfast.bench.client import run

    with progress("measuring") as tell:
        report = asyncio.run(run(quick=quick, progress=tell))
    _print(report, json_file)


@bench.command()
@click.option("--url", help="The storage to measure on; without it, a SQLite file in a temporary directory.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the figures here.",
)
@click.option("--quick", is_flag=True, help="Small counts, for a first look; the figures vary more.")
def webhooks(url: str | None, json_file: Path | None, quick: bool) -> None:
    """Measure webhooks: deliveries, the way from a commit to its POST, and what a dead receiver does to the others.

    A bare loop of POSTs to the same receivers is measured beside it.

    \b
    Example:
      holdfast bench webhooks --quick
    """
    from holdfast.bench.webhooks import run

    logging.getLogger("holdfast.webhooks").setLevel(logging.ERROR)  # that a receiver is dead is what is measured
    with progress("measuring") as tell:
        report = asyncio.run(run(url, quick=quick, progress=tell))
    _print(report, json_file)


def _print(report: Report, json_file: Path | None) -> None:
    rows = [[each.name, three_digits(each.value), each.unit, each.target, MET[each.met]] for each in report.figures]
    print_table(["figure", ">value", "unit", "target", ""], rows)
    judged = [each.met for each in report.figures if each.met is not None]
    click.echo(f"{sum(judged)} of {len(judged)} targets met")
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=2) + "\n")


def three_digits(value: float) -> str:
    """As many decimals as a noisy figure deserves."""
    decimals = next((n for n, least in enumerate((100, 10, 1)) if abs(value) >= least), 3)
    return f"{value:,.{decimals}f}"
