"""Output of the commands: JSON for programs, tables for people, progress of long work on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from keelbolt.kernel.transfer.copy import CopyProgress, Tell

WIDE = 1000  # characters
GAP = 2  # characters between two columns of a table whose rows are cut

as_json = click.option("--json", "json_output", is_flag=True, help="Print JSON.")


_KEPT = "\n\t\u200c\u200d"  # line breaks, tabs, and joiners of emoji and letters


def plain(text: str) -> str:
    """Return text of another program without terminal control: no escapes, cursor moves or direction marks."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in _KEPT else "�" for each in text)


def escaped(text: str) -> str:
    """Return equivalent JSON in which every unprintable character is escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def echo(text: str = "", *, err: bool = False, nl: bool = True, **style: Any) -> None:
    """Print text for people, made safe for the terminal: an agent may have written any of it."""
    words = plain(text)
    colour = False if os.environ.get("NO_COLOR") else None  # None: if the output is a terminal
    click.echo(click.style(words, **style) if style else words, err=err, nl=nl, color=colour)


def echo_json(text: str) -> None:
    """Print a line of JSON. Characters that the terminal's encoding lacks are escaped."""
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = "".join(each if each.isascii() else json.dumps(each)[1:-1] for each in text)
    click.echo(escaped(text))


def print_json(value: Any) -> None:
    echo_json(json.dumps(value, indent=2))


_COLOURS = {
    "completed": "green",
    "failed": "red",
    "rejected": "red",
    "canceled": "yellow",
    "input_required": "cyan",
    "auth_required": "cyan",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table with a colour."""

    text: str
    colour: str | None = None


def coloured(state: str) -> Cell:
    """Return the state of a task, in its colour."""
    return Cell(state, _COLOURS.get(state))


def colour_of(state: str) -> str | None:
    """Return the colour of a task's state, or None."""
    return _COLOURS.get(state)


def ago(moment: str) -> str:
    """Return the age of a timestamp: 12s, 3m, 5h, 2d."""
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Cell]], *, title: str | None = None, cut: bool = False
) -> None:
    """Print a table. Columns whose name starts with > are numbers, right-aligned.

    ``cut``: on a terminal, each row is one line; its last cell is truncated to fit.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heading = None if title is None else Text(plain(title))
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    if cut:
        table.box, table.padding = None, (0, GAP, 0, 0)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        name = Text(plain(column.removeprefix(">")))
        table.add_column(name, justify=justify, overflow="fold")  # never truncate an id
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    texts = [[Text(plain(cell.text), style=cell.colour or "") for cell in row] for row in cells]
    console = Console()
    if not console.is_terminal:
        console.width = WIDE  # programs and files get whole lines
    elif cut:
        taken = [max(text.cell_len for text in column) for column in zip(*texts, strict=True)][:-1]
        heads = [len(column.removeprefix(">")) for column in columns[:-1]]
        room = console.width - sum(map(max, taken or heads, heads)) - GAP * (len(columns) - 1)
        for row in texts:
            row[-1] = Text(" ".join(row[-1].plain.split()))
            row[-1].truncate(max(room, 10), overflow="ellipsis")
    for row in texts:
        table.add_row(*row)  # Text: a [ is no markup
    console.print(table)


def print_traceback(text: str) -> None:
    """Print a traceback, indented."""
    echo("\n".join(f"    {line}" for line in text.split("\n")), dim=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal's stderr that work is in progress; yield a function that changes the text."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(plain(f"{what} …"))) as status:
        yield lambda text: status.update(Text(plain(f"{what} … {text}")))


def size(count: int) -> str:
    """Format a number of bytes."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


# ------------------------------------------------------------------------------------------------------------- progress


LINE_SECONDS = 2.0

_WORDS = {"copy": "copying", "verify": "verifying"}


@contextmanager
def work_progress(what: str, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items done: ``erasing: 1,200 records (600/s)``."""
    with _shown() as show:
        yield lambda done: show(what, done, 0, f" {unit}")


@contextmanager
def transfer_progress() -> Iterator[Tell]:
    """Yield a function to call with each Progress of a copy, a backup or a restore."""
    with _shown() as show:

        def tell(step: CopyProgress) -> None:
            passed = f", {size(step.bytes)} in all" if step.bytes else ""
            show(f"{_WORDS[step.phase]} {step.table}", step.done, step.total, passed)

        yield tell


Show = Callable[[str, int, int, str], None]
"""Shows progress: name, items done, total (0: unknown), and additional text."""


@contextmanager
def _shown() -> Iterator[Show]:
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines().show
        return
    from rich import progress

    bars = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.completed:,.0f}"),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    tasks: dict[str, progress.TaskID] = {}
    with bars:

        def show(name: str, done: int, total: int, _more: str) -> None:
            if not done and not total:
                return
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total or None, rate="")
            task = next(task for task in bars.tasks if task.id == tasks[name])
            rate = f"{task.speed:,.0f}/s" if task.speed else ""
            bars.update(tasks[name], completed=done, total=total or None, rate=rate)

        yield show


class Lines:
    """One line every LINE_SECONDS, for logs."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._done: dict[str, int] = {}

    def show(self, name: str, done: int, total: int, more: str) -> None:
        now = time.monotonic()
        if now - self._at < LINE_SECONDS:
            return
        rate = (done - self._done.get(name, 0)) / (now - self._at)
        self._at, self._done[name] = now, done
        of = f" of {total:,}" if total else ""
        echo(f"{name}: {done:,}{of} ({rate:,.0f}/s){more}", err=True)
