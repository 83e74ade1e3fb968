"""Options that name a subject, for `keelbolt erase` and `keelbolt export`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from keelbolt.data import Subject

SUBJECTS = {
    "task": "A task of the agent server.",
    "context": "A context: its tasks, and the turns of its thread.",
    "session": "A session of the state store, the OpenAI Agents SDK or Google ADK, with its data.",
    "trace": "A trace of the state store.",
    "memory": "A memory state of the state store.",
    "thread": "A thread of the turn runner or of LangGraph.",
    "user": "An owner of tasks, with its turns, memory and artifacts.",
}

Command = TypeVar("Command", bound=Callable[..., Any])


def subject_options(command: Command) -> Command:
    """Add one option for each kind of subject, --tenant and --owner."""
    text = "The owner of the task, context or thread."
    command = click.option("--owner", metavar="ID", default="", help=text)(command)
    text = "Alone: all data of this tenant. With another subject: its tenant."
    command = click.option("--tenant", metavar="ID", default="", help=text)(command)
    for kind, text in reversed(SUBJECTS.items()):
        command = click.option(f"--{kind}", metavar="KEY" if kind == "memory" else "ID", help=text)(command)
    return command


def subject_of(named: Mapping[str, str | None], tenant: str, owner: str, *, more: str = "") -> Subject | None:
    """Return the subject in the options; None if they name none and ``more`` alternatives exist. Raise UsageError."""
    from keelbolt.data import Subject

    given = [(kind, id_) for kind, id_ in named.items() if id_ is not None]
    if not given and tenant:
        given = [("tenant", tenant)]
    if not given and more:
        return None
    if len(given) != 1 or not given[0][1]:
        raise click.UsageError(f"name one subject: {', '.join(f'--{kind}' for kind in (*SUBJECTS, 'tenant'))}{more}")
    [(kind, id_)] = given
    return Subject(kind=kind, id=id_, tenant="" if kind == "tenant" else tenant, owner=owner)
