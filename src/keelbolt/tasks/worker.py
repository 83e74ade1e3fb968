"""The code that users write: the worker, its dependencies, and lifecycle hooks."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from keelbolt.auth.authenticator import acting_as
from keelbolt.errors import InvalidValue, KeelboltError
from keelbolt.protocol.types import TaskState

if TYPE_CHECKING:
    from keelbolt.tasks.context import TaskContext
    from keelbolt.tasks.manager import TaskManager

Hook = Callable[[str, TaskState], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LifecycleHooks:
    """Hooks get the task's id and new state. They run in the process that wrote the state, if it has a worker."""

    on_state_change: Hook | None = None
    on_working: Hook | None = None
    on_turn_end: Hook | None = None
    on_terminal: Hook | None = None
    _telling: dict[str, asyncio.Future[None]] = field(default_factory=dict, init=False, repr=False, compare=False)

    async def tell(self, task_id: str, state: TaskState) -> None:
        """Call the hooks, after earlier calls for this task have finished, so that calls stay in order."""
        before = self._telling.get(task_id)
        finished = self._telling[task_id] = asyncio.get_running_loop().create_future()
        try:
            if before is not None:
                await asyncio.wait([before])
            await self._tell(task_id, state)
        finally:
            finished.set_result(None)
            if self._telling.get(task_id) is finished:
                del self._telling[task_id]

    async def _tell(self, task_id: str, state: TaskState) -> None:
        await self._call(self.on_state_change, task_id, state)
        if state is TaskState.working:
            await self._call(self.on_working, task_id, state)
        if state.terminal or state.paused:
            await self._call(self.on_turn_end, task_id, state)
        if state.terminal:
            await self._call(self.on_terminal, task_id, state)

    async def _call(self, hook: Hook | None, task_id: str, state: TaskState) -> None:
        if hook is None:
            return
        try:
            await hook(task_id, state)
        except Exception:
            logger.exception("a lifecycle hook failed for task %s (%s)", task_id, state.name)


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


# --------------------------------------------------------------------------------------------------------- dependencies


logger = logging.getLogger("keelbolt.tasks")

T = TypeVar("T")


class Dependency:
    """A resource that is started and shut down: a pool, a client, a model. Other objects can be dependencies, too."""

    async def startup(self) -> None:
        """Called before the first task runs."""

    async def shutdown(self) -> None:
        """Called after the last task ran."""


class Dependencies:
    """``ctx.deps[Database]`` or ``ctx.deps["model"]``: by type or by name."""

    def __init__(self, given: Mapping[Any, Any] | None = None) -> None:
        self._given = dict(given or {})
        self._started: list[Dependency] = []

    @overload
    def __getitem__(self, key: type[T]) -> T: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        try:
            return self._given[key]
        except KeyError:
            name = key.__name__ if isinstance(key, type) else repr(key)
            raise KeyError(f"no dependency {name}; pass it to the server: dependencies={{{name}: …}}") from None

    def get(self, key: Any, default: Any = None) -> Any:
        return self._given.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._given

    async def start(self) -> None:
        """Start each dependency. If one fails, shut down the started ones and raise an error that names it."""
        for key, value in self._given.items():
            if isinstance(value, Dependency):
                try:
                    await value.startup()
                except Exception as error:
                    await self.stop()
                    raise KeelboltError(f"the dependency {key!r} failed to start: {error}") from error
                self._started.append(value)

    async def stop(self) -> None:
        """Shut down the started dependencies in reverse order. A failure is logged; the others are still shut down."""
        while self._started:
            value = self._started.pop()
            try:
                await value.shutdown()
            except Exception:
                logger.exception("the dependency %s failed to shut down", type(value).__name__)
