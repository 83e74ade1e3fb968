"""How the commands print: JSON for programs, tables for people, and on stderr what is going on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import click

WIDE = 1000  # characters

as_json = click.option("--json", "json_output", is_flag=True, help="Print JSON, for programs.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> None:
    """Columns whose name starts with > are numbers, set to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.removeprefix(">"), justify=justify, overflow="fold")  # an id is cut nowhere
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: a [ in a name is a [ and no markup
    console = Console()
    if not console.is_terminal:
        console.width = WIDE  # a program or a file has room for whole lines
    console.print(table)


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Shows on a terminal's stderr that long work goes on; the function that it gives changes the text."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(f"{what} …")) as status:
        yield lambda text: status.update(Text(f"{what} … {text}"))


def size(count: int) -> str:
    """Bytes, readable."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
