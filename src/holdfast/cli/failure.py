"""How a command ends that could not be done."""

from __future__ import annotations

from typing import IO, Any

import click


class Failure(click.ClickException):
    """An error that says what happened and what to do next: one line, no traceback."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {' '.join(self.message.split())}", file=file, err=file is None)


class WrongConfiguration(Failure):
    """What was asked for can't be: a directory, a module, a key."""

    exit_code = 1


class WrongArguments(click.UsageError):
    """The same, where the arguments themselves are wrong."""

    exit_code = 1
