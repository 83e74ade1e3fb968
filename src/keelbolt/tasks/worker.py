"""What a user writes."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from keelbolt.auth.authenticator import acting_as
from keelbolt.errors import InvalidValue

if TYPE_CHECKING:
    from keelbolt.tasks.context import TaskContext
    from keelbolt.tasks.manager import TaskManager


class Worker(ABC):
    """Does the work of an agent.

    class Echo(Worker):
        async def handle(self, ctx: TaskContext) -> None:
            await ctx.complete(f"You said: {ctx.user_text}")

    `handle` is called once per turn: when a task is new, and when its user answers. When the process dies, it is
    called again by another one, from the start; what ran in `ctx.step` is not repeated.
    """

    @abstractmethod
    async def handle(self, ctx: TaskContext) -> None:
        """Do the work, and end the turn: ctx.complete, respond, fail, reject, request_input, …"""

    def attach(self, tasks: TaskManager) -> None:  # noqa: B027 - most workers need no manager
        """Called once, before the engine starts, with the manager of the worker's tasks."""


Handler: TypeAlias = "Callable[[TaskContext], Awaitable[None]]"
AnyWorker: TypeAlias = "Worker | type[Worker] | Handler"


def handler_of(worker: AnyWorker) -> Handler:
    """The coroutine function that does the work (of a worker, of a worker's class, or itself), for its caller."""
    if isinstance(worker, type):
        if not issubclass(worker, Worker):
            raise _not_a_worker(worker.__name__)
        worker = worker()
    handler: Handler = worker.handle if isinstance(worker, Worker) else worker
    if not any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None)))):  # noqa: B004
        raise _not_a_worker(type(worker).__name__)

    async def on_behalf(ctx: TaskContext) -> None:
        """What the worker calls can ask `auth_identity_var` for whom it works."""
        with acting_as(ctx.principal):
            await handler(ctx)

    return on_behalf


def _not_a_worker(name: str) -> InvalidValue:
    return InvalidValue(
        f"a worker is a Worker or an `async def` that takes a TaskContext, not {name}; "
        "put blocking work into `await asyncio.to_thread(...)`"
    )
