"""What the commands about tasks share: which storage, whose tasks, and the engine without a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from keelbolt.cli.storage import existing
from keelbolt.errors import InvalidValue

if TYPE_CHECKING:
    from keelbolt.auth.principal import Principal
    from keelbolt.data.retention import Policy
    from keelbolt.storage.contract import Kernel
    from keelbolt.tasks.engine import TaskEngine

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

storage_option = click.option(
    "--storage",
    "url",
    required=True,
    metavar="URL",
    envvar="KEELBOLT_STORAGE",
    show_envvar=True,
    help="Where the tasks are: sqlite:///agent.db, postgresql://… or redis://…",
)

retain_option = click.option(
    "--retain",
    multiple=True,
    metavar="WHAT=LIMIT",
    envvar="KEELBOLT_RETAIN",
    show_envvar=True,
    help="How long or how many to keep: completed=30d, log=1h, sessions=52w, updates=10000; may be repeated.",
)


def policies_of(retain: tuple[str, ...]) -> list[Policy]:
    """The retention policies that --retain gives to the faces."""
    from keelbolt.data.families import faces
    from keelbolt.data.retention import parse_policies

    if not retain:
        return []
    return parse_policies(retain, [face.policy for face in faces() if face.policy is not None])


def whose(command: Command) -> Command:
    """Adds --owner and --tenant."""
    tenant = click.option("--tenant", default="", help="The tenant of the owner, where there are several.")
    owner = click.option("--owner", default="", help="Whose tasks; without it, those of anonymous callers.")
    return owner(tenant(command))


def principal_of(owner: str, tenant: str) -> Principal:
    from keelbolt.auth.principal import Principal

    return Principal(owner=owner, tenant=tenant)


async def opened(url: str, *, create: bool = False) -> Kernel:
    """The storage at this URL, which others use too. ``create``: one that is not there yet is made."""
    from keelbolt.storage.urls import open_storage

    if url.partition(":")[0] == "memory":
        raise InvalidValue(
            "memory: can't be shared with other processes; use sqlite:///path, postgresql:// or redis://"
        )
    return open_storage(url) if create else await existing(url)


@asynccontextmanager
async def engine_at(url: str, *, create: bool = False) -> AsyncIterator[TaskEngine]:
    """The task engine on this storage, without a worker."""
    from keelbolt.tasks.engine import TaskEngine

    async with await opened(url, create=create) as kernel, TaskEngine(kernel) as engine:
        yield engine
