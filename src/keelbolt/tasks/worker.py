"""The worker: the code that users write."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from keelbolt.auth.authenticator import acting_as
from keelbolt.errors import InvalidValue

if TYPE_CHECKING:
    from keelbolt.tasks.context import TaskContext
    from keelbolt.tasks.manager import TaskManager


class Worker(ABC):
    """Handles the turns of an agent's tasks.

    class Echo(Worker):
        async def handle(self, ctx: TaskContext) -> str:
            return f"You said: {ctx.user_text}"

    `handle` is called once per turn: when a task is new, and when its user answers. If the process dies, another
    process calls it again from the start; completed `ctx.step` calls are not repeated.
    """

    @abstractmethod
    async def handle(self, ctx: TaskContext) -> Any:
        """Do the work, and end the turn: return the answer, or await ctx.complete, fail, reject, request_input, …

        A returned text or JSON value completes the task with it. None completes the task if an artifact was emitted in
        this turn; otherwise the task fails.
        """

    def attach(self, tasks: TaskManager) -> None:  # noqa: B027 - most workers need no manager
        """Called once, before the engine starts, with the manager of the worker's tasks."""


Handler: TypeAlias = "Callable[[TaskContext], Awaitable[Any]]"
AnyWorker: TypeAlias = "Worker | type[Worker] | Handler"


def handler_of(worker: AnyWorker) -> Handler:
    """Return the coroutine function of a worker, a worker class or a function; it runs as the caller."""
    if isinstance(worker, type):
        if not issubclass(worker, Worker):
            raise _not_a_worker(worker.__name__)
        worker = worker()
    handler: Handler = worker.handle if isinstance(worker, Worker) else worker
    if not any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None)))):  # noqa: B004
        raise _not_a_worker(type(worker).__name__)
    _check_parameter(handler)

    async def on_behalf(ctx: TaskContext) -> None:
        """Call the worker with the caller's identity (`auth_identity_var`), and complete the task with its result."""
        with acting_as(ctx.principal):
            await ctx._finish(await handler(ctx))  # noqa: SLF001

    return on_behalf


def _check_parameter(handler: Handler) -> None:
    """Raise InvalidValue for a worker that can't be called with a context."""
    signature = inspect.signature(handler)
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(handler, "__name__", "__call__")
        of_class = "" if inspect.isfunction(handler) else "self, "
        raise InvalidValue(
            f"the worker {name}{signature} can't be called with a TaskContext: {error}. "
            f"Write: async def {name}({of_class}ctx: TaskContext)"
        ) from None


def _not_a_worker(name: str) -> InvalidValue:
    return InvalidValue(
        f"a worker must be a Worker or an `async def` that takes a TaskContext, not {name}; "
        "put blocking work into `await asyncio.to_thread(...)`"
    )
