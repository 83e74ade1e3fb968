"""This process, as the sessions of one store see it: its lease, what it runs, and what other processes tell it."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from keelbolt.errors import StorageClosed
from keelbolt.state.codec import decode, encode
from keelbolt.state.families import RUNS
from keelbolt.state.names import joined
from keelbolt.state.sessions.ground import Ground
from keelbolt.state.sessions.owner import Owner, Run, list_runs
from keelbolt.state.types.tasks import TaskState
from keelbolt.storage import Delete, Kernel

if TYPE_CHECKING:
    from keelbolt.state.store import StateStore

_processes: weakref.WeakKeyDictionary[Any, Process]


class Listener(Protocol):
    """A session that can be told something."""

    session_id: str

    def told(self, event: Any) -> None:
        """Take a demand that another process passed on."""


class Process:
    """One for each store. It has a lease while a session is open in a loop that still runs."""

    def __init__(self, store: StateStore, *, lease_seconds: float) -> None:
        self.ground = Ground(store)
        self.lease_seconds = lease_seconds
        self._types = store.types
        self._owner: Owner | None = None
        self._starting = asyncio.Lock()
        self._taking = asyncio.Lock()
        self._running: dict[str, asyncio.AbstractEventLoop] = {}
        self._listeners: list[tuple[asyncio.AbstractEventLoop, weakref.ref[Listener]]] = []

    @classmethod
    def of(cls, store: StateStore, *, lease_seconds: float) -> Process:
        """The one of this store."""
        process = _processes.get(store)
        if process is None:
            process = _processes[store] = cls(store, lease_seconds=lease_seconds)
        return process

    def enter(self, session: Listener) -> None:
        """A session is open, in this loop. A repeat says nothing new."""
        here = asyncio.get_running_loop()
        if not any(loop is here and each is session for loop, each in self._listening()):
            self._listeners.append((here, weakref.ref(session)))

    async def leave(self, session: Listener) -> None:
        """A session is closed. With the last one the lease ends."""
        self._listeners = [(loop, weakref.ref(each)) for loop, each in self._listening() if each is not session]
        if not self._wanted():
            with contextlib.suppress(StorageClosed):
                await self.ground.attempt(self._stop, None, "end_lease")

    # ------------------------------------------------------------------------------------------------------------- runs

    async def begin(self, task: TaskState, strategy: str) -> Run | None:
        """This process runs the task from now on: what is saved next is saved after that.

        None: a resilient store can't be asked, and the task has no owner.
        """
        owner = await self.ground.attempt(self._present, None, "begin_run")
        if owner is None:
            return None
        self._running[joined(task.session_id, task.task_id)] = asyncio.get_running_loop()
        return owner.begin(task, strategy)

    def end(self, run: Run) -> None:
        """No process runs the task any more; what was saved before is saved."""
        self._running.pop(run.key, None)
        self.ground.save("end_run", run.held, Delete(RUNS, run.key))

    async def runs(self, kernel: Kernel, session_id: str) -> Sequence[Run]:
        """The tasks of a session that some process runs; on the kernel's loop."""
        return await list_runs(kernel, self.ground.partition, session_id)

    async def take_over(self, session_id: str) -> Sequence[Run]:
        """The tasks that dead processes (and loops of this one that ended) left behind, which are this one's now."""
        loop = asyncio.get_running_loop()

        async def take(kernel: Kernel) -> Sequence[Run]:
            async with self._taking:
                owner = await self._present(kernel)
                taken = await owner.take_over(kernel, session_id, lambda run: self._runs(run.key))
                self._running.update({run.key: loop for run in taken})
                return taken

        none: Sequence[Run] = ()
        return await self.ground.attempt(take, none, "recover")

    def _runs(self, key: str) -> bool:
        """Whether a loop of this process that has not ended runs it."""
        loop = self._running.get(key)
        return loop is not None and not loop.is_closed()

    # ---------------------------------------------------------------------------------------------------------- demands

    async def pass_on(self, event: Any) -> bool:
        """Tell whoever runs the task; False when nobody does."""
        demand = encode(event.model_dump())
        key = joined(event.session_id, event.task_id)

        async def write(kernel: Kernel) -> bool:
            owner = await self._present(kernel)
            holder = await owner.holder(kernel, key)
            if holder is None or (holder == owner.id and not self._runs(key)):
                return False
            await owner.tell(kernel, holder, event.event_id, demand)
            return True

        return await self.ground.attempt(write, otherwise=False, method="pass_on")

    def _heard(self, demand: bytes) -> None:
        event = self._types.make("SteeringEvent", decode(demand))
        for loop, session in self._listening():
            if session.session_id == event.session_id:
                with contextlib.suppress(RuntimeError):  # the loop has just ended
                    loop.call_soon_threadsafe(session.told, event)

    # --------------------------------------------------------------------------------------------- on the kernel's loop

    async def _present(self, kernel: Kernel) -> Owner:
        async with self._starting:
            if self._owner is None or not self._owner.running:
                owner = Owner(self.ground, self._heard, self._wanted, lease_seconds=self.lease_seconds)
                await owner.start(kernel)
                self._owner = owner
            return self._owner

    async def _stop(self, kernel: Kernel) -> None:
        async with self._starting:
            owner, self._owner = self._owner, None
            if owner is not None:
                await owner.stop(kernel)

    def _wanted(self) -> bool:
        """Whether a session is open in a loop that still runs: a loop that ended has left its tasks behind."""
        return bool(self._listening())

    def _listening(self) -> list[tuple[asyncio.AbstractEventLoop, Listener]]:
        """The open sessions whose loops still run."""
        found = [(loop, session()) for loop, session in self._listeners if not loop.is_closed()]
        return [(loop, session) for loop, session in found if session is not None]


_processes = weakref.WeakKeyDictionary()
