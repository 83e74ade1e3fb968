"""Runs session tasks in this process, and takes over tasks from dead processes.

Each running task is a work item that the process holds under its `Lease`, and every write of the task carries the fence
of the item. A process that can't renew its lease stops its tasks before the lease ends. Then another process that has a
session open claims the items, and fails the tasks or runs them again, also without a request from a caller.

A control for a task that another process runs is appended to the inbox of the task, which its holder follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from keelbolt.errors import CommitInDoubt, CommitRefused, KeelboltError, LeaseLost, StorageClosed
from keelbolt.kernel import Append, Claim, Complete, Delete, Draft, Drop, Enqueue, Kernel, Present, Scope
from keelbolt.leases import Lease, cancelled, end_doubtful
from keelbolt.state.codec import decode, encode
from keelbolt.state.engine.connection import CLOSED
from keelbolt.state.engine.host import KernelHost
from keelbolt.state.engine.writes import Saving
from keelbolt.state.families import INBOXES, RUNS
from keelbolt.state.names import joined, name
from keelbolt.state.sessions.storage import SessionRun, SessionStorage, dump_run, list_runs, load_run
from keelbolt.state.types.tasks import TaskState

if TYPE_CHECKING:
    from keelbolt.state.store import StateStore

MAX_ATTEMPTS = 5
BEATS_PER_LEASE = 3
POLL_SECONDS = 1.0  # maximum interval between polls for tasks of dead processes
CLAIMS = 20
LISTEN_AFTER_SECONDS = 0.05  # most tasks that end sooner get no control from another process

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop

logger = logging.getLogger("keelbolt.state.sessions")


class Member(Protocol):
    """Runs session tasks in one event loop of this process. ``session_id`` is None if it belongs to no session."""

    @property
    def tenant(self) -> str: ...

    @property
    def session_id(self) -> str | None: ...

    def steered(self, event: Any) -> None:
        """Execute a control that another process passed on."""

    def lost(self, run: SessionRun) -> None:
        """Stop this task: its lease has ended, and another process may take it over."""

    async def take(self, run: SessionRun) -> None:
        """Fail a task of a dead process or run it again; this process holds it now."""


@dataclass(slots=True)
class _Held:
    """A task that this process holds, and where it runs."""

    run: SessionRun
    loop: Loop
    member: weakref.ref[Member]
    follower: asyncio.Task[None] | None = None

    def call(self, function: Callable[[Member], None]) -> None:
        """Call the function in the loop of the task."""
        if (member := self.member()) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(function, member)

    def ignore_inbox(self) -> None:
        """Stop following the inbox; callable from any thread."""
        if (follower := self.follower) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                follower.get_loop().call_soon_threadsafe(follower.cancel)


class SessionProcess:
    """The lease and tasks of this process in one storage. It has a lease while a member's loop runs."""

    def __init__(self, host: KernelHost, *, lease_seconds: float) -> None:
        self._host = weakref.ref(host)
        self._seconds = lease_seconds
        self._members: list[tuple[Loop, weakref.ref[Member]]] = []
        self._held: dict[tuple[str, str], _Held] = {}
        self._taking: dict[Future[None], SessionRun] = {}
        self._unwanted: list[Claim] = []  # claims to release
        self._ending: list[tuple[Claim, Saving]] = []  # claims whose completion is being saved
        self._doubtful: list[tuple[str, str, str]] = []  # partition, key and worker of claims that may exist
        self._forked(0)

    def _forked(self, pid: int) -> None:
        self._pid = pid
        self._lease: Lease | None = None
        self._serving: asyncio.Task[None] | None = None
        self._starting, self._claiming = asyncio.Lock(), asyncio.Lock()

    @classmethod
    def of(cls, store: StateStore, *, lease_seconds: float) -> SessionProcess:
        """Return the instance for this store's storage."""
        host = store.host.host
        process = _processes.get(host)
        if process is None:
            process = _processes[host] = cls(host, lease_seconds=lease_seconds)
        return process

    def enter(self, member: Member) -> None:
        """Register an open member in this loop. From now on this process also takes over tasks of dead processes."""
        here, present = asyncio.get_running_loop(), self._present()
        self._members = [(loop, weakref.ref(each)) for loop, each in present]  # without those that never left
        if not any(loop is here and each is member for loop, each in present):
            self._members.append((here, weakref.ref(member)))
        if not self._serves() and (host := self._host()) is not None:
            with contextlib.suppress(StorageClosed):
                host.begin(self._start).add_done_callback(_failed_start)

    async def leave(self, member: Member) -> None:
        """Unregister a closed member. The lease ends with the last member."""
        self._members = [(loop, weakref.ref(each)) for loop, each in self._present() if each is not member]
        if not self._members:
            with contextlib.suppress(KeelboltError):
                await self._ask(self._stop)

    # ------------------------------------------------------------------------------------------------------------- runs

    async def begin(self, storage: SessionStorage, member: Member, task: TaskState, strategy: str) -> SessionRun | None:
        """Claim this task. Raise LeaseLost if another process holds it.

        Return None if a resilient store is unavailable. Then the task runs without a lease.
        """
        run = SessionRun(storage.tenant, task.session_id, task.task_id, task.task_type.value, strategy)
        loop = asyncio.get_running_loop()
        begun: SessionRun | None = None
        abandoned = False

        async def write(scope: Scope) -> SessionRun:
            nonlocal begun
            lease = await self._start()
            worker = lease.name
            claim = Enqueue(RUNS, run.key, max_attempts=MAX_ATTEMPTS, worker=worker)
            try:
                receipt = await scope.commit(dump_run(run), claim)
            except CommitRefused as error:
                raise LeaseLost from error
            except (asyncio.CancelledError, CommitInDoubt):
                self._doubtful.append((scope.partition, run.key, worker))
                raise
            fence = receipt.fence(RUNS, run.key)
            held = replace(run, claim=Claim(scope, RUNS, run.key, fence, 1, MAX_ATTEMPTS, "", 0))
            if worker != lease.name:
                raise LeaseLost
            self._hold(storage, _Held(held, loop, weakref.ref(member)))
            begun = held
            if abandoned:
                self._abandon(held)
            return held

        try:
            result = await storage.attempt(write, None, "begin_run")
        except BaseException:  # also cancelled, or timed out; the work may continue in another thread
            abandoned = True
            self._abandon(begun)
            raise
        if result is None:
            abandoned = True
            self._abandon(begun)
        return result

    def _abandon(self, run: SessionRun | None) -> None:
        """Remove the work item of a task that its caller does not run; may be called twice."""
        if run is None or run.claim is None or (held := self._held.get((run.claim.partition, run.key))) is None:
            return
        if held.run is run:
            self._forget(held)
            assert self._lease is not None
            self._doubtful.append((run.claim.partition, run.key, self._lease.name))

    async def resume(self, storage: SessionStorage, member: Member, run: SessionRun) -> None:
        """Run a task again that was taken over."""
        held = _Held(run, asyncio.get_running_loop(), weakref.ref(member))

        async def listen(_scope: Scope) -> None:
            self._hold(storage, held)

        await storage.call(listen)

    def end(self, storage: SessionStorage, run: SessionRun) -> None:
        """Complete the task's work item, after all earlier saves."""
        if run.claim is None:
            return
        held = self._held.get((run.claim.partition, run.key))
        if held is not None and held.run == run:
            self._forget(held)
        saved = storage.save("end_run", run.claim.complete(), Delete(RUNS, run.key), Drop(INBOXES, run.key))
        if isinstance(saved, Saving):
            self._ending.append((run.claim, saved))

    def give_back(self, run: SessionRun) -> None:
        """Release the task for another process."""
        if run.claim is not None and (held := self._held.get((run.claim.partition, run.key))) is not None:
            self._forget(held)
            self._unwanted.append(run.claim)

    async def settle(self, storage: SessionStorage, session_id: str, runs: Sequence[SessionRun] | None = None) -> None:
        """Take over the tasks of this session from dead processes, and wait until they are recovered.

        ``runs`` is the result of `list_runs`, if the caller has read it.
        """
        if runs is None:
            none: Sequence[SessionRun] = ()
            runs = await storage.attempt(lambda scope: list_runs(scope, session_id), none, "list_runs")
        held = {(each.run.tenant, each.run.key) for each in self._held.values() if not each.loop.is_closed()}
        if all((storage.tenant, run.key) in held for run in runs):
            return

        async def claim(_scope: Scope) -> None:
            await self._start()
            await self._claim()

        await storage.attempt(claim, None, "recover")
        mine = (storage.tenant, session_id)
        taking = [future for future, run in self._taking.items() if (run.tenant, run.session_id) == mine]
        await asyncio.gather(*map(asyncio.wrap_future, taking), return_exceptions=True)

    def _hold(self, storage: SessionStorage, held: _Held) -> None:
        """Register the task and follow its inbox; runs on the kernel's loop."""
        assert held.run.claim is not None
        self._held[held.run.claim.partition, held.run.key] = held
        held.follower = asyncio.get_running_loop().create_task(self._follow(storage, held), name="session-inbox")

    def _forget(self, held: _Held) -> None:
        assert held.run.claim is not None
        self._held.pop((held.run.claim.partition, held.run.key), None)
        held.ignore_inbox()

    # --------------------------------------------------------------------------------------------------------- controls

    async def pass_on(self, storage: SessionStorage, event: Any) -> bool:
        """Send a control to the process that runs the task; return False if there is none."""
        key = joined(event.session_id, event.task_id)
        demand = Append(INBOXES, key, (Draft("steering", encode(event.model_dump()), name(event.event_id)),))

        async def write(scope: Scope) -> bool:
            try:
                await scope.commit(Present(RUNS, key), demand)
            except CommitRefused:
                return False
            return True

        return await storage.attempt(write, otherwise=False, method="pass_on")

    async def _follow(self, storage: SessionStorage, held: _Held) -> None:
        after = 0  # a task that runs again gets all controls again
        await asyncio.sleep(LISTEN_AFTER_SECONDS)
        while True:
            try:
                entries = await storage.next_entries(INBOXES, held.run.key, after)
            except StorageClosed:
                return
            except KeelboltError as error:
                logger.warning("Task %s no longer gets controls of other processes: %s", held.run.task_id, error)
                return
            for entry in entries:
                after, event = entry.seq, storage.types.make("SteeringEvent", decode(entry.data))
                held.call(lambda member, event=event: member.steered(event))  # type: ignore[misc]

    # --------------------------------------------------------------------------------------------- on the kernel's loop

    async def _start(self, _kernel: Kernel | None = None) -> Lease:
        """Take the lease and start polling, unless this process has done so."""
        if self._pid != os.getpid():
            self._forked(os.getpid())
        async with self._starting:
            if self._lease is None or not self._serves():
                beats = self._seconds / BEATS_PER_LEASE
                self._lease = lease = Lease(self, seconds=self._seconds, heartbeat=beats, lost=self._lost)
                await lease.start()
                self._serving = asyncio.get_running_loop().create_task(self._serve(lease), name="session-takeover")
            return self._lease

    async def _stop(self, _kernel: Kernel) -> None:
        async with self._starting:
            serving, self._serving = self._serving, None
            if serving is not None:
                await cancelled(serving)

    def _serves(self) -> bool:
        return self._serving is not None and not self._serving.done() and self._pid == os.getpid()

    async def _serve(self, lease: Lease) -> None:
        try:
            while self._present():
                try:
                    claimed = await self._claim()
                except StorageClosed:
                    lease.abandon()
                    return
                except KeelboltError as error:
                    logger.warning("Session tasks can't be taken over until the storage responds: %s", error)
                    claimed = 0
                if not claimed:
                    await asyncio.sleep(min(POLL_SECONDS, self._seconds / 4))
        finally:
            await lease.stop()

    async def _claim(self) -> int:
        """Claim tasks of dead processes, pass each to a member, and return their number."""
        async with self._claiming:
            await self._give_back()
            lease = self._lease
            assert lease is not None
            worker = lease.name
            seconds = self._seconds
            asked = asyncio.ensure_future(
                self._ask(lambda kernel: kernel.claim(RUNS, worker, limit=CLAIMS, lease_seconds=seconds))
            )
            try:
                claims = list(await asyncio.shield(asked))
            except asyncio.CancelledError:
                asked.add_done_callback(self._claimed_late)
                raise
            count = len(claims)
            try:
                while claims:
                    if worker != lease.name:  # the lease was lost meanwhile: no heartbeat would renew these claims
                        break
                    await self._hand_over(claims[0])
                    claims.pop(0)
            finally:  # otherwise the heartbeat would renew claims that were not passed on because of an error
                self._unwanted.extend(claims)
            return count

    def _claimed_late(self, asked: asyncio.Future[Sequence[Claim]]) -> None:
        if not asked.cancelled() and asked.exception() is None:
            self._unwanted.extend(asked.result())

    async def _hand_over(self, claim: Claim) -> None:
        place = (claim.partition, claim.key)
        record = await self._ask(lambda kernel: kernel.get(claim.partition, RUNS, claim.key))
        if record is None:
            with contextlib.suppress(CommitRefused):
                await self._ask(lambda kernel: kernel.commit(claim.partition, claim.complete()))
            return
        run = load_run(record, claim)
        found = self._member_for(run)
        if found is None:
            self._unwanted.append(claim)
            return
        loop, member = found
        self._held[place] = _Held(run, loop, weakref.ref(member))
        taking = member.take(run)
        try:
            future = asyncio.run_coroutine_threadsafe(taking, loop)
        except RuntimeError:  # the loop has just ended
            taking.close()
            return
        self._taking[future] = run
        future.add_done_callback(self._taken)

    def _taken(self, future: Future[None]) -> None:
        run = self._taking.pop(future)
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, LeaseLost):
            logger.warning("Recovery of task %s failed and is retried: %r", run.task_id, error)
        if error is not None or future.cancelled():
            self.give_back(run)

    def _member_for(self, run: SessionRun) -> tuple[Loop, Member] | None:
        """Return the member that has the session open, otherwise the member opened last."""
        members = self._present()
        for loop, member in members:
            if (member.tenant, member.session_id) == (run.tenant, run.session_id):
                return loop, member
        return members[-1] if members else None

    async def _give_back(self) -> None:
        """Release the claims that no loop of this process runs. Failed releases are retried later."""
        for held in [held for held in self._held.values() if held.loop.is_closed()]:
            self.give_back(held.run)
        for ending in [each for each in self._ending if each[1].done]:
            if ending[1].error is not None:  # otherwise the heartbeat would renew the claim of a task that has ended
                self._unwanted.append(ending[0])
            self._ending.remove(ending)
        while self._doubtful:
            if self._doubtful[0][:2] not in self._held:
                await self._ask(partial(_drop, self._doubtful[0]))
            self._doubtful.pop(0)
        while self._unwanted:
            claim = self._unwanted[0]  # removed when it is released: the heartbeat would renew a forgotten claim
            with contextlib.suppress(CommitRefused):
                await self._ask(lambda kernel, claim=claim: kernel.commit(claim.partition, claim.release()))  # type: ignore[misc]
            self._unwanted.remove(claim)

    def _lost(self) -> None:
        """Stop all tasks because the lease could not be renewed."""
        held, self._held = self._held, {}
        for each in held.values():
            each.ignore_inbox()
            each.call(lambda member, run=each.run: member.lost(run))  # type: ignore[misc]

    def _present(self) -> list[tuple[Loop, Member]]:
        """Return the members whose loops still run."""
        found = [(loop, member()) for loop, member in self._members if not loop.is_closed()]
        return [(loop, member) for loop, member in found if member is not None]

    # -------------------------------------------------------------------------------------------------------- the lease

    async def heartbeat(self, worker: str, *, lease_seconds: float) -> None:
        """Renew the lease on the current kernel; the storage may have been reopened."""
        await self._ask(lambda kernel: kernel.heartbeat(worker, lease_seconds=lease_seconds))

    async def retire(self, worker: str) -> int:
        """End the lease."""
        return await self._ask(lambda kernel: kernel.retire(worker))

    async def _ask(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        host = self._host()
        if host is None:
            raise StorageClosed(CLOSED)
        return await host.ask(function)


async def _drop(doubtful: tuple[str, str, str], kernel: Kernel) -> None:
    """Remove the work item of a task that does not run, if this worker holds it."""
    place, key, worker = doubtful
    await end_doubtful(
        kernel,
        kernel.scoped(place),
        RUNS,
        key,
        worker,
        lambda fence: (Complete(RUNS, key, fence), Delete(RUNS, key), Drop(INBOXES, key)),
    )


def _failed_start(future: Future[Lease]) -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        logger.warning(
            "Takeover of session tasks could not start; this process retries when it runs a session task: %s", error
        )


_processes: weakref.WeakKeyDictionary[KernelHost, SessionProcess] = weakref.WeakKeyDictionary()
