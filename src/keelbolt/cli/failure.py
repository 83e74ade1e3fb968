"""How a command ends that could not be done."""

from __future__ import annotations

from typing import IO, Any

import click

from keelbolt.cli.output import plain
from keelbolt.errors import FieldViolation


class Failure(click.ClickException):
    """An error that says what happened and what to do next: one line, no traceback."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        text = f"error: {' '.join([*self.message.split(), *self._wrong()])}"
        click.echo(plain(text), file=file, err=file is None)

    def _wrong(self) -> list[str]:
        """The places that are wrong, where the error behind this one names any that its message does not."""
        violations: tuple[FieldViolation, ...] = getattr(self.__cause__, "violations", ())
        places = [f"{one.field}: {one.description}" if one.field else one.description for one in violations]
        found = "; ".join(place for place in places if place not in self.message)
        return [f"({found})"] if found else []


class WrongConfiguration(Failure):
    """What was asked for can't be: a directory, a module, a key."""

    exit_code = 1


class WrongArguments(click.UsageError):
    """The same, where the arguments themselves are wrong."""

    exit_code = 1
