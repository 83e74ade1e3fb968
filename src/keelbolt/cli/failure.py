"""Failed commands: one line on stderr, and an exit code.

0: done. 1: failed. 2: wrong usage. 3: not found, or refused.
"""

from __future__ import annotations

from typing import IO, Any

import click

from keelbolt import errors
from keelbolt.cli.output import plain
from keelbolt.errors import FieldViolation, KeelboltError

FAILED, WRONG_USAGE, REFUSED = 1, 2, 3

_REFUSED = (
    errors.AuthenticationFailed,
    errors.DestinationInUse,
    errors.ExtendedCardNotConfiguredError,
    errors.MethodNotFoundError,
    errors.PushNotificationNotSupportedError,
    errors.SkillNotFoundError,
    errors.StateNotFound,
    errors.StorageMissing,
    errors.StorageMoved,
    errors.SubjectExists,
    errors.SubjectInUse,
    errors.SubjectNotFound,
    errors.TaskNotAcceptingMessagesError,
    errors.TaskNotCancelableError,
    errors.TaskNotFoundError,
    errors.TaskTerminalStateError,
    errors.TenantNotFoundError,
    errors.UnsupportedOperationError,
)
_WRONG_USAGE = (
    errors.InvalidParamsError,
    errors.InvalidRequest,
    errors.InvalidRequestError,
    errors.InvalidTaskRequest,
    errors.UnknownScheme,
)


def exit_code(error: KeelboltError) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, _REFUSED):
        return REFUSED
    return WRONG_USAGE if isinstance(error, _WRONG_USAGE) else FAILED


class CommandFailure(click.ClickException):
    """An error that says what happened and what to do next: one line, no traceback."""

    code = FAILED

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = self.code if code is None else code  # type: ignore[misc]

    @classmethod
    def of(cls, error: KeelboltError) -> CommandFailure:
        advice = "; set a token with --token or KEELBOLT_TOKEN"
        return cls(f"{error}{advice if isinstance(error, errors.AuthenticationFailed) else ''}", code=exit_code(error))

    def show(self, file: IO[Any] | None = None) -> None:
        text = f"error: {' '.join([*self.message.split(), *self._wrong()])}"
        click.echo(plain(text), file=file, err=file is None)

    def _wrong(self) -> list[str]:
        """Return the invalid fields that the message does not name."""
        violations: tuple[FieldViolation, ...] = getattr(self.__cause__, "violations", ())
        places = [f"{one.field}: {one.description}" if one.field else one.description for one in violations]
        found = "; ".join(place for place in places if place not in self.message)
        return [f"({found})"] if found else []


class Refused(CommandFailure):
    """Not found, or refused."""

    code = REFUSED


class WrongConfiguration(CommandFailure):
    """Modules can't be served: a directory, a module or a key is wrong. Same exit code as apcore-a2a."""


class AgentFailed(CommandFailure):
    """Serving modules failed. Same exit code as apcore-a2a."""

    code = 2


class WrongArguments(click.UsageError):
    """Wrong arguments when serving modules. Same exit code as apcore-a2a."""

    exit_code = 1
