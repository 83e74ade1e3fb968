"""How the commands print: JSON for programs, tables for people, and on stderr what is going on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import click

WIDE = 1000  # characters

as_json = click.option("--json", "json_output", is_flag=True, help="Print JSON, for programs.")


_KEPT = "\n\t\u200c\u200d"  # lines, and what joins emoji and letters


def plain(text: str) -> str:
    """Text of another program without what would steer the terminal: no escape, no cursor, no direction of writing."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in _KEPT else "�" for each in text)


def escaped(text: str) -> str:
    """JSON of the same meaning in which every character that can't be seen is written as an escape."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def echo(text: str = "", *, err: bool = False, nl: bool = True, **style: Any) -> None:
    """Print text for people. All text of the commands goes through here, since an agent may have written any of it."""
    words = plain(text)
    colour = False if os.environ.get("NO_COLOR") else None  # None: where a terminal is
    click.echo(click.style(words, **style) if style else words, err=err, nl=nl, color=colour)


def echo_json(text: str) -> None:
    """Print a line of JSON."""
    click.echo(escaped(text))


def print_json(value: Any) -> None:
    echo_json(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> None:
    """Columns whose name starts with > are numbers, set to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heading = None if title is None else Text(plain(title))
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        name = Text(plain(column.removeprefix(">")))
        table.add_column(name, justify=justify, overflow="fold")  # an id is cut nowhere
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))  # Text: a [ in a name is a [ and no markup
    console = Console()
    if not console.is_terminal:
        console.width = WIDE  # a program or a file has room for whole lines
    console.print(table)


def print_traceback(text: str) -> None:
    """Print a traceback, indented."""
    echo("\n".join(f"    {line}" for line in text.split("\n")), dim=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Shows on a terminal's stderr that long work goes on; the function that it gives changes the text."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(plain(f"{what} …"))) as status:
        yield lambda text: status.update(Text(plain(f"{what} … {text}")))


def size(count: int) -> str:
    """Bytes, readable."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
