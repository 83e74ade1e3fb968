"""Runs tasks in this process: claims them, renews the lease, and releases them when it stops or loses the lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from keelbolt.errors import CommitRefused, KeelboltError, LeaseLost, StorageUnavailable, TaskTerminalStateError
from keelbolt.kernel import Claim, Operation, QueueTopic, Release, Scope
from keelbolt.leases import Lease, Outage, cancelled, end_doubtful, give_back
from keelbolt.observability.logs import masked
from keelbolt.observability.metrics import Metrics, TaskStatistics
from keelbolt.observability.tracing import Tracing
from keelbolt.protocol.types import Message, TaskState
from keelbolt.tasks.events import TaskFeeds
from keelbolt.tasks.families import QUEUE
from keelbolt.tasks.journal import TaskJournal
from keelbolt.tasks.lifecycle import End, WorkerStart
from keelbolt.tasks.notes import Note, OtherNote, error_note
from keelbolt.tasks.record import TaskRecord
from keelbolt.tasks.run import TaskRun
from keelbolt.tasks.settings import TaskSettings
from keelbolt.tasks.stored_tasks import StoredTask, StoredTasks, TaskKey
from keelbolt.tasks.telemetry import log_fields, traced
from keelbolt.tasks.worker import Dependencies, Handler, LifecycleHooks

logger = logging.getLogger("keelbolt.tasks")

CLAIM_BATCH = 16
LISTEN_AFTER_SECONDS = 0.05  # a shorter turn reads its inbox only at its end
AGAIN_SECONDS = 1.0  # delay before a failed task is retried
MAX_REASON = 1000
POLL_SECONDS = 0.5  # delayed items and expired leases send no notification
RETIRE_SECONDS = 5.0  # if the store does not respond, the lease expires
GIVEN_UP = "The agent could not work on this task; it was given up after its last attempt."
EXHAUSTED = "The agent's process died each time it worked on this task; it was given up."
UNCLEANED = "The task was canceled. Its worker could not clean up: the process died each time."


class Runner:
    """The worker incarnation of this process, and the tasks that it holds."""

    def __init__(
        self,
        store: StoredTasks,
        events: TaskFeeds,
        handler: Handler,
        *,
        settings: TaskSettings,
        dependencies: Dependencies,
        hooks: LifecycleHooks | None = None,
        metrics: Metrics | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.store = store
        self.events = events
        self.handler = handler if tracing is None else traced(handler, tracing)
        self.settings = settings
        self.dependencies = dependencies
        self.hooks = hooks
        self.tracing = tracing
        self.metrics = metrics
        self.pulse = TaskStatistics()
        self._lease = Lease(
            store.kernel, seconds=settings.lease_seconds, heartbeat=settings.heartbeat_seconds, lost=self._lost
        )
        self.runs: dict[TaskKey, TaskRun] = {}
        self.requests = RequestContexts()
        self._reserved = 0
        self._draining = False
        self._young: list[TaskRun] = []  # runs that just started
        self._freed = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None
        self._beginning: set[asyncio.Task[None]] = set()
        self._telling: set[asyncio.Task[None]] = set()  # hooks
        self._suspect: TaskKey | None = None  # a task with few attempts left, which starts here
        self._cleared = asyncio.Event()
        self._outage = Outage("no task can be claimed", logger)

    # -------------------------------------------------------------------------------------------------- life cycle

    async def start(self) -> None:
        """Take a lease, and start to claim tasks."""
        await self._lease.start()
        self._claiming = asyncio.create_task(self._claims(), name="claims")

    async def stop(self) -> None:
        """Stop claiming, wait up to ``drain_seconds`` for running tasks, release the rest, and end the lease."""
        self._draining = True
        if self._claiming is None:
            return
        await cancelled(self._claiming)
        while self._beginning:
            await asyncio.wait(self._beginning)
        await self._finish()
        if self._telling:
            _, late = await asyncio.wait(self._telling, timeout=RETIRE_SECONDS)
            for hook in late:
                logger.warning("a lifecycle hook did not return within %g s and is cancelled", RETIRE_SECONDS)
                await cancelled(hook)
        await self._lease.stop()
        self._claiming = None

    async def abandon(self) -> None:
        """Stop all work here without a write to the storage, as in a killed process. For tests."""
        self._draining = True
        self._lease.abandon()
        dying = [*self._beginning, *self._telling, *([self._claiming] if self._claiming is not None else [])]
        self._claiming = None
        for task in dying:
            task.cancel()
        gone = [asyncio.ensure_future(run.finished()) for run in self.runs.values()]
        for run in list(self.runs.values()):
            run.stop("lost")
        if waiting := [*dying, *gone]:
            await asyncio.wait(waiting, timeout=RETIRE_SECONDS)

    async def _finish(self) -> None:
        running = [asyncio.ensure_future(run.finished()) for run in self.runs.values()]
        if running:
            await asyncio.wait(running, timeout=self.settings.drain_seconds)
        for run in list(self.runs.values()):
            run.stop("drain")
        left = [waiter for waiter in running if not waiter.done()]
        if left:
            await asyncio.wait(left, timeout=2.0)
        for waiter in left:
            waiter.cancel()

    # ------------------------------------------------------------------------------------------------------- slots

    @property
    def free(self) -> int:
        return 0 if self._draining else self.settings.concurrency - len(self.runs) - self._reserved

    def reserve(self) -> str | None:
        """Reserve a slot for a task that is about to be created here; return the name to claim it with, or None."""
        if self._claiming is None or self.free <= 0:
            return None
        self._reserved += 1
        return self.name

    def unreserve(self) -> None:
        self._reserved -= 1
        self._freed.set()

    def run(self, journal: TaskJournal, message: Message | None = None) -> TaskRun:
        """Run a task that is claimed and started. ``message`` is its turn's message, if it is already loaded."""
        run = TaskRun(self, journal)
        if (lost := self.runs.get(run.key)) is not None:  # this process has not yet noticed that it lost the task
            lost.stop("lost")
        self.runs[run.key] = run
        self._young.append(run)
        if len(self._young) == 1:
            asyncio.get_running_loop().call_later(LISTEN_AFTER_SECONDS, self._listen)
        self.events.running.add(run.key)
        run.start(message)
        return run

    def _listen(self) -> None:
        """Start the inbox listeners of runs that are not over yet. One timer for all: most runs end before it fires."""
        young, self._young = self._young, []
        for run in young:
            if self.runs.get(run.key) is run:
                run.ear.listen()

    def finished(self, run: TaskRun) -> None:
        if self.runs.get(run.key) is run:
            del self.runs[run.key]
            self.events.running.discard(run.key)
        if run.key == self._suspect:
            self._cleared.set()
        self._freed.set()

    def status_committed(self, task: StoredTask) -> None:
        """Count a committed status, and call the hooks."""
        state = task.view.state
        if state.terminal:
            seconds = (task.record.updated - task.record.created) / 1_000_000
            self.pulse.end(seconds, failed=state is TaskState.failed)
            if self.metrics is not None:
                self.metrics.task_ended(state.name, seconds)
        if self.metrics is not None:
            self.metrics.tasks[state.name] += 1
        if self.hooks is not None:
            self._spawn(self.hooks.tell(task.record.task_id, state), self._telling)

    def _count(self, event: str) -> None:
        if self.metrics is not None:
            self.metrics.events[event] += 1

    def _spawn(self, work: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]] | None = None) -> None:
        tasks = self._beginning if kept is None else kept
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    # ------------------------------------------------------------------------------------------------------ claims

    async def _claims(self) -> None:
        with self.store.kernel.watch(QueueTopic(QUEUE)) as watch:
            while True:
                if self._suspect is not None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self.settings.lease_seconds):
                            await self._cleared.wait()
                    self._suspect = None
                if self.free <= 0:
                    self._freed.clear()
                    await self._freed.wait()
                    continue
                if not await self._claim():
                    await watch.wait(POLL_SECONDS)

    async def _claim(self) -> bool:
        """Claim and start tasks. Return whether to claim again at once: False if no task is waiting."""
        limit = min(self.free, CLAIM_BATCH)
        self._reserved += limit
        name = self.name
        try:
            claims = await self.store.kernel.claim(QUEUE, name, limit=limit, lease_seconds=self.settings.lease_seconds)
        except Exception as error:  # noqa: BLE001 - a process that stops claiming would look healthy
            if self._outage.failed(error):
                self._count("storage_outages")
            await asyncio.sleep(POLL_SECONDS)
            return True
        else:
            self._outage.ended()
        finally:
            self._reserved -= limit
        if name != self.name:  # the lease was given up meanwhile, so it is not renewed for these
            for claim in claims:
                self.give_back_later(claim)
            return bool(claims)
        for claim in await self._one_suspect(claims):
            self._reserved += 1
            self._spawn(self._begin(claim))
        return bool(claims)

    async def _one_suspect(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Return the claims to start, with at most one suspect.

        A suspect is a task with few attempts left: it may have crashed the earlier processes, or only have run in them.
        Suspects start one at a time: the others are released first, and no task is claimed until the suspect has ended
        or has run for the time of a lease. So a crash can't exhaust the attempts of other tasks.
        """
        suspects = [claim for claim in claims if max(2, claim.max_attempts - 1) <= claim.attempt <= claim.max_attempts]
        if not suspects:
            return claims
        self._suspect = (suspects[0].scope, suspects[0].key)
        self._cleared.clear()
        for claim in suspects[1:]:
            try:
                await claim.scope.commit(claim.release(ready_in=POLL_SECONDS))
            except CommitRefused:
                pass
            except Exception:  # noqa: BLE001 - a process that stops claiming would look healthy
                self.give_back_later(claim)
        return [claim for claim in claims if claim not in suspects[1:]]

    async def _begin(self, claim: Claim) -> None:
        try:
            await self._begin_or_end(claim)
        except (LeaseLost, CommitRefused):
            pass  # another process was first
        except TaskTerminalStateError:  # the task was ended meanwhile
            try:
                await claim.scope.commit(claim.complete())
            except CommitRefused:
                pass
            except KeelboltError:
                self.give_back_later(claim)
        except StorageUnavailable as error:
            logger.warning("task %s could not be started: %s", claim.key, error, extra=log_fields(claim))
            self.give_back_later(claim)
        except Exception as error:
            logger.exception("task %s could not be started", claim.key, extra=log_fields(claim))
            await self.attempt_failed(claim, error)
        finally:
            self.unreserve()
            key = (claim.scope, claim.key)
            if key == self._suspect and key not in self.runs:
                self._cleared.set()

    async def _begin_or_end(self, claim: Claim) -> None:
        task = await self.store.find(claim.scope, claim.key)
        if task is None:
            await claim.scope.commit(claim.complete())
            return
        state = task.view.state
        if state.paused or task.view.over:  # the work item was enqueued too late
            await claim.scope.commit(claim.complete())
            return
        journal = TaskJournal(self.store, self.events, task, claim)
        if claim.exhausted:
            await self._dead_letter(journal, EXHAUSTED, UNCLEANED if task.view.cleanup else EXHAUSTED)
            return
        if claim.attempt > 1:
            self._count("takeovers")
            said = "task %s is taken over: attempt %d of %d begins here"
            fields = log_fields(claim, task.record)
            logger.warning(said, claim.key, claim.attempt, claim.max_attempts, extra=fields)
        note = self.attempt_note(task.record.turn.number, claim)
        if state is TaskState.submitted:
            await journal.move(WorkerStart(), before=[note])
        else:
            await journal.write([note])
        if not journal.task.view.cleanup:
            self.status_committed(journal.task)
        self.run(journal).ear.poke()

    def attempt_note(self, turn: int, claim: Claim | None, took: int | None = None) -> OtherNote:
        """Return the note that records the process and attempt number of a turn."""
        body: dict[str, Any] = {"turn": turn, "attempt": claim.attempt if claim else 1, "worker": self.name}
        if took is not None:
            body["took"] = took
        return OtherNote("attempt", body)

    def orphaned(self, scope: Scope, task_id: str) -> None:
        """Release a task that a send may have claimed for this process: it was canceled, or its commit is in doubt."""
        self._spawn(self._release_orphan(scope, task_id))

    async def _release_orphan(self, scope: Scope, task_id: str) -> None:
        """Release the task, with retries while the store is away; otherwise the heartbeat would keep it without use."""

        def release(fence: int) -> tuple[Operation, ...]:
            return () if (scope, task_id) in self.runs else (Release(QUEUE, task_id, fence),)

        while not self._draining:
            try:
                await end_doubtful(self.store.kernel, scope, QUEUE, task_id, self.name, release)
                break
            except KeelboltError as error:
                logger.warning("task %s could not be released and is retried: %s", task_id, error)
                await asyncio.sleep(POLL_SECONDS)

    async def attempt_failed(self, claim: Claim, error: Exception) -> None:
        """Count a failed attempt that was not caused by a storage outage; the last attempt ends the task."""
        try:
            if claim.attempt < claim.max_attempts:
                self._count("retries")
                await claim.scope.commit(claim.retry(_reason(error), ready_in=AGAIN_SECONDS))
            else:
                await self._give_up(claim, error)
        except CommitRefused:
            pass
        except KeelboltError as problem:
            logger.warning("task %s could not be released: %s", claim.key, problem)
            self.give_back_later(claim)

    async def _give_up(self, claim: Claim, error: Exception) -> None:
        reason = _reason(error)
        try:
            task = await self.store.load(claim.scope, claim.key)
            journal = TaskJournal(self.store, self.events, task, claim)
            await self._dead_letter(journal, GIVEN_UP, reason, [error_note(error)])
        except (StorageUnavailable, CommitRefused):
            raise
        except KeelboltError:  # its end can't be written: keep at least the dead letter
            await claim.scope.commit(claim.bury(reason))
            self._log_dead_letter(claim, reason)

    async def _dead_letter(self, journal: TaskJournal, words: str, reason: str, before: Sequence[Note] = ()) -> None:
        """Fail the task with the message ``words``, and keep its work item as a dead letter with ``reason``.

        A canceled task whose worker could not clean up stays canceled.
        """
        buried = journal.claim.bury(reason)
        if journal.task.view.cleanup:
            said = "task %s was canceled, but its worker could not clean up: %s"
            fields = log_fields(journal.claim, journal.task.record)
            logger.error(said, journal.claim.key, reason, extra=fields)
            await journal.cleaned(buried, before)
            return
        await journal.move(End(TaskState.failed, journal.task.record.message(words)), buried, before=before)
        self._log_dead_letter(journal.claim, reason, journal.task.record)
        self.status_committed(journal.task)

    def _log_dead_letter(self, claim: Claim, reason: str, record: TaskRecord | None = None) -> None:
        self._count("dead_letters")
        attempts = min(claim.attempt, claim.max_attempts)  # the last claim may only have been made to end the task
        said = "task %s is a dead letter after %d attempts: %s"
        logger.warning(said, claim.key, attempts, reason, extra=log_fields(claim, record))

    def give_back_later(self, claim: Claim) -> None:
        """See `give_back`."""
        self._spawn(give_back(claim, every=POLL_SECONDS, unless=lambda: self._draining))

    # ------------------------------------------------------------------------------------------------------- lease

    @property
    def name(self) -> str:
        """The name of this worker incarnation in claims and logs."""
        return self._lease.name

    def _lost(self) -> None:
        """Stop all runs: the lease could not be renewed, and other processes may take the tasks over."""
        self._count("lease_losses")
        logger.warning("lease lost: %d tasks are left to other processes", len(self.runs))
        for run in list(self.runs.values()):
            run.stop("lost")


def _reason(error: Exception) -> str:
    return masked(str(error))[:MAX_REASON]


# ----------------------------------------------------------------------------------------------------- request contexts


MAX_WAITING = 1000  # requests whose turn has not started here; the oldest is dropped first

Key = tuple[Scope, str, str]  # scope of the owner, task id, message id


class RequestContexts:
    """Values of a request that its worker sees: in memory from the send until the turn starts here, never stored."""

    def __init__(self) -> None:
        self._waiting: dict[Key, dict[str, Any]] = {}

    def put(self, key: Key, values: Mapping[str, Any]) -> None:
        """Keep the values until the turn of this message starts here."""
        self._waiting.pop(key, None)
        self._waiting[key] = dict(values)
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]

    def take(self, key: Key) -> dict[str, Any]:
        """Return and remove the values of this message's request; empty if this process has none."""
        return self._waiting.pop(key, None) or {}
