"""The reference contains every command, option and error."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from keelbolt import errors
from keelbolt.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"


def error_names() -> list[str]:
    classes = inspect.getmembers(errors, inspect.isclass)
    return [name for name, kind in classes if issubclass(kind, errors.KeelboltError) and not name.startswith("_")]


def commands(command: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, child in command.commands.items():
        yield f"{path} {name}", child
        if isinstance(child, click.Group):
            yield from commands(child, f"{path} {name}")


@pytest.mark.parametrize("name", error_names())
def test_every_error_is_documented(name: str) -> None:
    assert f"| `{name}` |" in (DOCS / "reference/errors.md").read_text()


@pytest.mark.parametrize("name", error_names())
def test_every_error_is_in_the_tree(name: str) -> None:
    assert name in (errors.__doc__ or "")


@pytest.mark.parametrize(("path", "command"), list(commands(main, "keelbolt")))
def test_every_command_and_option_is_documented(path: str, command: click.Command) -> None:
    text = (DOCS / "reference/cli.md").read_text()
    heading = f"{'#' * len(path.split())} {path}\n"
    assert heading in text
    section = text.split(heading)[1].split("\n#")[0]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert f"`{parameter.opts[0]}" in section, parameter.name


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    for page in DOCS.rglob("*.md"):
        if page != DOCS / "README.md":
            assert f"({page.relative_to(DOCS)})" in index, page.name
