"""Bugs that a campaign must find. Each has a name; `plant` adds it to this process and its forks."""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections.abc import Callable
from typing import Any

from keelbolt.auth.principal import Principal
from keelbolt.data.erasing import _Eraser
from keelbolt.data.families import Face
from keelbolt.errors import TaskNotFoundError
from keelbolt.google_adk import sessions
from keelbolt.kernel import Append, Delete, Entry, Put, Scope, Take, judge
from keelbolt.kernel.ledger import Ledger
from keelbolt.kernel.sqlite import queues
from keelbolt.kernel.sqlite.writer import SqliteWriter
from keelbolt.kernel.work import Fence
from keelbolt.langgraph import checkpoints
from keelbolt.openai_agents import KeelboltSession
from keelbolt.protocol.types import TaskState
from keelbolt.state import StateStore
from keelbolt.state.artifacts.store import ArtifactStore
from keelbolt.state.sessions import live_context, stored_context
from keelbolt.state.sessions.runner import TaskExecution
from keelbolt.state.sessions.tasks import SessionRuns
from keelbolt.tasks import events, intake, lifecycle
from keelbolt.tasks.journal import TaskJournal
from keelbolt.tasks.manager import TaskManager
from keelbolt.tasks.run import TaskRun
from keelbolt.tasks.sends import Send
from keelbolt.tasks.settings import RetentionPolicy
from keelbolt.tasks.steps import Steps
from keelbolt.turns import worker as turn_worker
from keelbolt.turns.chat import executor
from keelbolt.turns.durable import store
from keelbolt.webhooks import delivery
from keelbolt.webhooks.post import wanted

ENGINES = ("sqlite", "postgres", "redis")
BUGS: dict[str, Callable[[], None]] = {}
ENGINES_OF: dict[str, tuple[str, ...]] = {}  # the engines that run the code with the bug


def bug_of(*engines: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(function: Callable[[], None]) -> Callable[[], None]:
        BUGS[function.__name__] = function
        ENGINES_OF[function.__name__] = engines
        return function

    return add


bug = bug_of(*ENGINES)


def put(owner: Any, name: str, value: Any) -> None:
    """Replace a method or function."""
    assert hasattr(owner, name), f"{owner} has no {name} any more: the bug has no effect"
    setattr(owner, name, value)


def plant(name: str) -> None:
    """Add this bug to the process; an empty name adds none."""
    if name:
        BUGS[name]()


@bug
def repeats_are_forgotten() -> None:
    put(Send, "insert", lambda *_: ())


@bug_of("sqlite")
def answered_before_the_commit() -> None:
    """SQLite: callers get their results before COMMIT."""
    inner = SqliteWriter._judge

    def judged(self: SqliteWriter, batch: Any) -> Any:
        answers, topics = inner(self, batch)
        self._answer(answers, topics)
        time.sleep(0.002)
        return [], topics

    put(SqliteWriter, "_judge", judged)


@bug
def shown_before_the_commit() -> None:
    """Readers get events that are not committed yet."""
    inner = TaskJournal._try

    async def tried(self: TaskJournal, notes: Any, operations: Any) -> None:
        feed = self._events.feed(self.task.scope, self.task.view.task_id)
        if feed is not None:
            first = self.task.view.head + 1
            feed.publish([Entry(first + at, note.kind, note.data, 0) for at, note in enumerate(notes)])
        await inner(self, notes, operations)

    put(TaskJournal, "_try", tried)


@bug
def resumed_one_event_too_late() -> None:
    inner = events.TaskFeeds.follow

    def follow(self: Any, *arguments: Any, after: int | None = None, **named: Any) -> Any:
        return inner(self, *arguments, after=None if after is None else after + 1, **named)

    put(events.TaskFeeds, "follow", follow)


@bug
def steps_are_not_recorded() -> None:
    async def done(_self: Steps, _key: str, result: Any) -> Any:
        return result

    put(Steps, "done", done)


@bug
def webhooks_skip_an_event() -> None:
    inner = wanted
    put(delivery, "wanted", lambda *arguments: random.random() < 0.95 and inner(*arguments))


@bug
def memory_is_overwritten() -> None:
    inner = StateStore.save_memory_state

    def save(self: StateStore, key: str, state: dict[str, Any], *, if_version: int | None = None) -> Any:
        return inner(self, key, state)

    put(StateStore, "save_memory_state", save)


@bug
def memory_is_read_from_a_cache() -> None:
    inner = StateStore.load_memory_version
    known: dict[str, tuple[float, Any]] = {}

    async def load(self: StateStore, key: str) -> Any:
        at, found = known.get(key, (0.0, None))
        if time.monotonic() - at > 0.5:
            found = await inner(self, key)
            known[key] = time.monotonic(), found
        return found

    put(StateStore, "load_memory_version", load)


@bug_of("sqlite", "postgres")
def pauses_stay_after_they_are_taken() -> None:
    inner = judge._take

    def take(ledger: Ledger, partition: str, operation: Any, now: int, at: int) -> Any:
        key = (partition, operation.collection, operation.key)
        stored = ledger.records[key]
        taken = inner(ledger, partition, operation, now, at)
        ledger.put_record(key, stored)
        return taken

    judge._WRITES[Take] = take


@bug
def owners_share_a_partition() -> None:
    put(Principal, "partition", property(lambda _: "~shared"))


@bug_of("sqlite", "postgres")
def fences_are_not_checked() -> None:
    """A worker that lost its task continues to write, and never learns that its lease expired."""
    judge._CHECKS[Fence] = lambda *_: None
    inner = TaskRun.stop

    def stop(self: TaskRun, why: Any) -> None:
        if why != "lost":
            inner(self, why)

    put(TaskRun, "stop", stop)


@bug_of("sqlite")
def fences_repeat() -> None:
    put(Ledger, "next_fence", lambda self: max(self.last_fence, 1))


@bug_of("sqlite", "postgres")
def logs_have_holes() -> None:
    inner = judge._append

    def append(ledger: Ledger, partition: str, operation: Any, now: int, at: int) -> Any:
        key = (partition, operation.log, operation.stream)
        stream = ledger.streams.get(key)
        if stream is not None and random.random() < 0.02:
            stream.head += 1
        return inner(ledger, partition, operation, now, at)

    judge._WRITES[Append] = append


@bug
def events_are_dropped() -> None:
    inner = StateStore.save_event

    def save(self: StateStore, event: Any, planner_event: Any = None) -> Any:
        if random.random() < 0.02:
            return asyncio.sleep(0)
        return inner(self, event, planner_event)

    put(StateStore, "save_event", save)


@bug
def artifacts_lose_a_byte() -> None:
    inner = ArtifactStore.put_bytes

    async def put_bytes(self: Any, data: bytes, **named: Any) -> Any:
        return await inner(self, data[:-1] if len(data) > 100_000 else data, **named)

    put(ArtifactStore, "put_bytes", put_bytes)


@bug
def tasks_are_not_found() -> None:
    inner = TaskManager.load

    async def load(self: TaskManager, task_id: str, *arguments: Any) -> Any:
        if random.random() < 0.2:
            raise TaskNotFoundError(task_id)
        return await inner(self, task_id, *arguments)

    put(TaskManager, "load", load)


@bug
def cancels_are_only_answered() -> None:
    async def cancel(self: TaskManager, task_id: str, principal: Any, **_: Any) -> Any:
        task = await self.store.load(self.scope(principal), task_id)
        task.view.state = TaskState.canceled
        task.view.status = b'{"state":"TASK_STATE_CANCELED"}'
        return task

    put(TaskManager, "cancel", cancel)


@bug
def tasks_end_twice() -> None:
    """The end of a task is written twice, and any state may follow its end."""
    put(lifecycle, "check_transition", lambda *_: None)
    inner = TaskJournal.move

    async def move(self: TaskJournal, command: Any, *operations: Any, **named: Any) -> None:
        if isinstance(command, lifecycle.End) and command.state.terminal and random.random() < 0.05:
            await inner(self, command, before=named.get("before", ()))
        await inner(self, command, *operations, **named)

    put(TaskJournal, "move", move)


@bug
def tasks_are_lost_after_the_answer() -> None:
    """A task that was sent is acknowledged without its commit."""
    inner = intake.Intake._create

    async def create(self: Any, scope: Scope, *arguments: Any, **named: Any) -> Any:
        if random.random() < 0.1:
            scope = self.kernel.scoped("~nowhere")
        return await inner(self, scope, *arguments, **named)

    put(intake.Intake, "_create", create)


@bug
def erasures_forget_the_task() -> None:
    """The erasure of every second task is only answered."""
    inner = _Eraser._subject

    async def erased(self: _Eraser, subject: Any, **named: Any) -> bool:
        forgotten = subject.kind == "task" and zlib.crc32(subject.ref.encode()) % 2
        return True if forgotten else await inner(self, subject, **named)

    put(_Eraser, "_subject", erased)


@bug
def erasures_leave_what_belongs_to_a_task() -> None:
    """Only the record and the log of a task are erased."""
    put(Face, "members", lambda *_arguments, **_named: [])


@bug
def lost_tasks_of_sessions_go_on() -> None:
    """A process does not notice that it lost the task of a session, and writes without a fence."""
    put(TaskExecution, "_lost", False)
    put(SessionRuns, "checks", lambda *_: ())
    put(SessionRuns, "lose", lambda *_: True)


@bug
def sweeps_take_every_task() -> None:
    """A sweep erases tasks that ended otherwise, too."""

    def ages(self: RetentionPolicy) -> Any:
        return [(state, 1.0) for state in TaskState if state.terminal]

    put(RetentionPolicy, "ages", ages)


@bug_of("sqlite")
def a_dead_worker_keeps_its_tasks() -> None:
    """Leases never expire, so tasks of a killed process never run again."""
    put(queues, "_expired", lambda *_: [])


@bug
def gates_are_left_open() -> None:
    """A tool that needs an approval is called without it."""
    put(executor, "_question", lambda *_: None)


@bug
def answers_continue_every_copy_of_a_turn() -> None:
    """A process that has the turn in memory acts on an answer that another process handles."""

    async def held(_self: Any, settlement: Any) -> Any:
        return settlement

    put(turn_worker._TaskGates, "_held", held)


@bug
def results_of_tools_are_forgotten() -> None:
    inner = executor._done

    async def done(*arguments: Any, **named: Any) -> None:
        if random.random() < 0.5:
            await inner(*arguments, **named)

    put(executor, "_done", done)


@bug
def messages_of_threads_are_dropped() -> None:
    inner = store.TurnStore.store

    async def keep(self: Any, where: Any, kind: Any, value: Any) -> None:
        if kind != "message" or random.random() < 0.8:
            await inner(self, where, kind, value)

    put(store.TurnStore, "store", keep)


@bug
def results_are_merged_into_an_old_context() -> None:
    """Two processes merge at once, and the later commit overwrites the other's result."""

    def replace(collection: str, key: str, _version: int, body: bytes, fields: Any) -> Put:
        return Put(collection, key, body, fields)

    put(stored_context, "Replace", replace)


@bug
def results_are_decided_by_each() -> None:
    put(live_context, "Delete", lambda collection, key, _version=None: Delete(collection, key))
    put(stored_context, "Replace", lambda collection, key, _version, body, fields: Put(collection, key, body, fields))


@bug
def pending_writes_are_forgotten() -> None:
    async def put_writes(*_: Any, **__: Any) -> None:
        await asyncio.sleep(0)

    put(checkpoints.Checkpoints, "put_writes", put_writes)


@bug
def threads_fork_silently() -> None:
    put(checkpoints, "conflict", lambda *_: None)


@bug
def checkpoints_are_dropped() -> None:
    inner = checkpoints.Checkpoints.put

    async def keep(self: Any, scope: Any, new: Any) -> None:
        if random.random() < 0.98:
            await inner(self, scope, new)

    put(checkpoints.Checkpoints, "put", keep)


@bug
def items_are_popped_twice() -> None:
    async def pop(self: KeelboltSession, scope: Any) -> Any:
        return next(iter(await self._read(scope, 1)), None)

    put(KeelboltSession, "_pop", pop)


@bug
def items_are_added_one_by_one() -> None:
    inner = KeelboltSession._add

    async def add(self: KeelboltSession, scope: Any, bodies: Any) -> None:
        for body in bodies:
            await inner(self, scope, [body])

    put(KeelboltSession, "_add", add)


@bug
def adk_events_are_stored_without_their_state() -> None:
    put(sessions, "_split", lambda _delta: {"app": {}, "user": {}, "session": {}})
