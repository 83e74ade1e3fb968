"""A store with any number of task engines on it; each engine stands for a process and can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from itertools import count
from types import TracebackType
from typing import Any, Self, cast

from msgspec.structs import replace
from pydantic_core import from_json

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.kernel import Clock, Entry, Kernel, open_storage
from keelbolt.kernel.base_kernel import BaseKernel
from keelbolt.protocol.types import Message, Part, Role, Task, TaskState
from keelbolt.tasks import Envelope, LifecycleHooks, Sent, TaskEngine, TaskSettings
from keelbolt.tasks.families import EVENTS, QUEUE
from keelbolt.tasks.notes import StatusNote, read_note
from keelbolt.tasks.stored_tasks import StoredTask
from keelbolt.tasks.worker import AnyWorker
from keelbolt.testing.worker import KernelLink

_numbers = count(1)


def message(text: str = "Hello", **more: Any) -> Message:
    """Return a new message of the user."""
    more.setdefault("message_id", f"message-{next(_numbers)}")
    more.setdefault("parts", [Part(text=text)])
    return Message(role=Role.user, **more)


def _ignore(digests: Iterable[bytes]) -> None:
    """Drop a notification."""


class Stage:
    """One store; `engine` starts a process on it, `crash` kills one."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._stack = AsyncExitStack()
        self._shared: Kernel | None = None  # a store in memory can't be opened twice
        self.lines: dict[TaskEngine, KernelLink] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def kernel(self, url: str | None = None) -> Kernel:
        if self._shared is not None:
            return self._shared
        kernel = await self._stack.enter_async_context(open_storage(url or self.url))
        if self.url.startswith("memory"):
            self._shared = kernel
        return kernel

    async def engine(
        self,
        worker: AnyWorker | None = None,
        *,
        hooks: LifecycleHooks | None = None,
        dependencies: dict[Any, Any] | None = None,
        url: str | None = None,
        clock: Clock | None = None,
        **given: Any,
    ) -> TaskEngine:
        """Start a process with this worker, until the end of the test."""
        given.setdefault("drain_seconds", 0.0)
        line = KernelLink(await self.kernel(url))
        more: dict[str, Any] = {"hooks": hooks, "dependencies": dependencies, "clock": clock}
        engine = TaskEngine(cast("Kernel", line), worker, settings=TaskSettings(**given), **more)
        self.lines[engine] = line
        await self._stack.enter_async_context(engine)
        return engine

    def deafen(self, engine: TaskEngine) -> None:
        """Stop all notifications from other processes to this one."""
        kernel = self.lines[engine].kernel
        assert isinstance(kernel, BaseKernel)
        kernel.board.wake_digests = _ignore  # type: ignore[method-assign]

    async def crash(self, engine: TaskEngine, *, expire: bool = True) -> None:
        """Kill the process: nothing more of it reaches the store. ``expire`` also ends its lease."""
        line = self.lines[engine]
        line.cut = True
        runner = engine.runner
        assert runner is not None
        runner._draining = True
        loops = [loop for loop in (runner._claiming, runner._lease._beating) if loop is not None]
        dying: list[asyncio.Task[Any]] = [*loops, *runner._beginning]
        dying += [run._task for run in runner.runs.values() if run._task is not None]
        runner._claiming = runner._lease._beating = None
        for task in dying:
            task.cancel()
        if dying:
            await asyncio.wait(dying, timeout=2.0)
        if expire:
            await self.expire(engine)

    async def expire(self, engine: TaskEngine) -> None:
        """End the lease of this process now."""
        assert engine.runner is not None
        await self.lines[engine].kernel.heartbeat(engine.runner.name, lease_seconds=0.001)
        await asyncio.sleep(0.005)


# ------------------------------------------------------------------------------------------------------------ reads


async def ask(engine: TaskEngine, text: str = "Hello", *, who: Principal = ANONYMOUS, **more: Any) -> Task:
    """Send a message, wait for the end of the turn, and return the task."""
    sent = await engine.tasks.send(message(text, **more), Envelope(who))
    return await answer(engine, sent)


def seen_by(engine: TaskEngine, sent: Sent) -> Sent:
    """Wait until a process sees the writes of another one through its own connection."""
    scope = engine.kernel.scoped(sent.task.scope.partition)
    return replace(sent, task=replace(sent.task, scope=scope))


async def answer(engine: TaskEngine, sent: Sent, *, seconds: float = 20.0) -> Task:
    return await look(engine, await engine.tasks.settled(seen_by(engine, sent), seconds=seconds))


async def look(engine: TaskEngine, task: StoredTask | str, **more: Any) -> Task:
    """Return the task as its client sees it, read from the store."""
    task_id = task if isinstance(task, str) else task.record.task_id
    partition = ANONYMOUS.partition if isinstance(task, str) else task.scope.partition
    scope = engine.kernel.scoped(partition)
    return await engine.store.task(await engine.store.load(scope, task_id), **more)


async def log(engine: TaskEngine, task_id: str, partition: str = ANONYMOUS.partition) -> list[Entry]:
    """Return the whole log of a task, and check that it is dense from 1."""
    entries: list[Entry] = []
    while True:
        page = await engine.kernel.read_log(partition, EVENTS, task_id, after=len(entries))
        entries += page.entries
        if len(entries) >= page.head:
            assert [entry.seq for entry in entries] == list(range(1, page.head + 1))
            return entries


async def states(engine: TaskEngine, task_id: str, partition: str = ANONYMOUS.partition) -> list[str]:
    """Return every status of the task, in order."""
    notes = map(read_note, await log(engine, task_id, partition))
    return [note.state.name for note in notes if isinstance(note, StatusNote)]


async def bodies(engine: TaskEngine, task_id: str, kind: str) -> list[dict[str, Any]]:
    """Return the notes of one kind, decoded."""
    return [from_json(entry.data) for entry in await log(engine, task_id) if entry.kind == kind]


async def one_end(engine: TaskEngine, task_id: str, partition: str = ANONYMOUS.partition) -> TaskState:
    """Return the terminal state of a task, after checking the promises of every task.

    The log is dense and has one terminal event, which is the last; record, log and list agree; no work is left.
    """
    task = await engine.store.load(engine.kernel.scoped(partition), task_id)
    way = await states(engine, task_id, partition)
    ends = [name for name in way if TaskState(name).terminal]
    assert len(ends) == 1, way
    entries = await log(engine, task_id, partition)
    last = read_note(entries[-1])
    assert isinstance(last, StatusNote), entries[-1]
    assert last.state.name == ends[0]
    assert task.view.state.name == task.record.state.name == ends[0]
    await until(lambda: _no_work(engine, partition, task_id))  # a runner removes a late work item
    return task.view.state


async def _no_work(engine: TaskEngine, partition: str, task_id: str) -> bool:
    item = await engine.kernel.work(partition, QUEUE, task_id)
    return item is None or item.state == "dead"


async def until(condition: Callable[[], Any], *, seconds: float = 10.0) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.005)


async def state_of(engine: TaskEngine, task_id: str) -> TaskState:
    return (await engine.tasks.load(task_id)).view.state


@contextlib.contextmanager
def at_most(seconds: float) -> Any:
    """Fail if the block takes longer than this many seconds."""
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < seconds, f"{took:.2f} s"
