"""Options shared by several commands, each with one name, one variable and one meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from keelbolt.observability.logs import LEVELS

if TYPE_CHECKING:
    from keelbolt.data import Subject
    from keelbolt.data.retention import FacePolicy

Command = TypeVar("Command", bound=Callable[..., Any])

STATES = (
    "submitted",
    "working",
    "input_required",
    "auth_required",
    "completed",
    "failed",
    "canceled",
    "rejected",
)


def storage_option(*, required: bool = True) -> Callable[[Command], Command]:
    return click.option(
        "--storage",
        "url",
        required=required,
        metavar="URL",
        envvar="KEELBOLT_STORAGE",
        show_envvar=True,
        help="The storage: sqlite:///agent.db, postgresql://… or redis://…",
    )


server_option = click.option(
    "--server",
    metavar="URL",
    envvar="KEELBOLT_SERVER",
    show_envvar=True,
    help="The URL of a running agent, instead of its storage: http://localhost:8000",
)

token_option = click.option(
    "--token", envvar="KEELBOLT_TOKEN", show_envvar=True, help="A bearer token; sent only to this agent."
)

retain_option = click.option(
    "--retain",
    multiple=True,
    metavar="WHAT=LIMIT",
    envvar="KEELBOLT_RETAIN",
    show_envvar=True,
    help="How long or how many to keep: completed=30d, log=1h, sessions=52w, updates=10000; repeatable.",
)

log_level_options: dict[str, Any] = {
    "type": click.Choice(LEVELS, case_sensitive=False),
    "default": "info",
    "show_default": True,
    "help": "The lowest level that is logged to stderr.",
}

log_format_options: dict[str, Any] = {
    "envvar": "KEELBOLT_LOG_FORMAT",
    "type": click.Choice(["text", "json"]),
    "default": "text",
    "show_default": True,
    "help": "Plain lines, or a JSON object per line.",
}

task_options: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--concurrency", {"type": int, "help": "Maximum number of running tasks per process.  [default: 100]"}),
    (
        "--lease-seconds",
        {
            "type": float,
            "metavar": "SECONDS",
            "help": "Without a heartbeat for this time, a process loses its tasks to others.  [default: 15]",
        },
    ),
    (
        "--double-text",
        {
            "type": click.Choice(["enqueue", "reject", "interrupt"]),
            "help": "How to handle a message to a running task.  [default: enqueue]",
        },
    ),
)
"""Settings of the task engine, on `serve` and `worker`; each is also KEELBOLT_<NAME>."""


def variable_of(flag: str) -> str:
    """Return the environment variable of a flag that is named after a setting."""
    return f"KEELBOLT_{flag.removeprefix('--').replace('-', '_').upper()}"


def policies_of(retain: tuple[str, ...]) -> list[FacePolicy]:
    """Return the retention policies of the faces from --retain."""
    from keelbolt.data.families import faces
    from keelbolt.data.retention import parse_policies

    if not retain:
        return []
    return parse_policies(retain, [face.policy for face in faces() if face.policy is not None])


def whose(command: Command) -> Command:
    """Add --owner and --tenant."""
    tenant = click.option("--tenant", default="", metavar="ID", help="The tenant of the owner.")
    owner = click.option("--owner", default="", metavar="ID", help="The owner.  [default: the caller]")
    return owner(tenant(command))


def whose_or_all(command: Command) -> Command:
    """Add --owner, --tenant and --all; the command gets them as ``whose``, the query for the API."""

    def run(*args: Any, owner: str, tenant: str, everyone: bool, **options: Any) -> Any:
        if everyone and (owner or tenant):
            raise click.UsageError("--all includes every owner; omit --owner and --tenant")
        return command(*args, whose={"owner": owner, "tenant": tenant, "all": everyone}, **options)

    everyone = click.option("--all", "everyone", is_flag=True, help="Include all tenants and owners.")
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return whose(everyone(run))  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------------------- subjects


SUBJECTS = {
    "task": "A task of the agent server.",
    "context": "A context: its tasks, and the turns of its thread.",
    "session": "A session of the state store, the OpenAI Agents SDK or Google ADK, with its data.",
    "trace": "A trace of the state store.",
    "memory": "A memory state of the state store.",
    "thread": "A thread of the turn runner or of LangGraph.",
    "user": "An owner of tasks, with its turns, memory and artifacts.",
}


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
