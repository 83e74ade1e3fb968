"""Promises of the StateStore: events, memory, pauses, artifacts and sessions."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping

from keelbolt.state import StateStore
from keelbolt.state.sessions import SessionManager, StreamingSession, TaskRuntime
from keelbolt.state.sessions.tasks import is_over
from keelbolt.state.types import TaskStatus, UpdateType
from tests.chaos import linear
from tests.chaos.final import Store, Violation, both
from tests.chaos.history import Asked, Histories
from tests.chaos.state_user import LIMITS

END_SECONDS = 30.0
GIVEN_UP = (  # ends that a task names
    (TaskStatus.FAILED, "save_task could not save"),  # the store failed when it was to begin
    (TaskStatus.CANCELLED, "session_closed"),  # by the process that ran it, perhaps after a takeover
)


async def events_are_kept(histories: Histories, store: Store) -> list[Violation]:
    """Every event that was acknowledged is in its trace, once."""
    found: list[Violation] = []
    traces: dict[str, list[Asked]] = defaultdict(list)
    for asked in histories.answered("event"):
        traces[asked.asked["trace"]].append(asked)
    async with StateStore(store.url) as state:
        for trace, events in traces.items():
            names = [event.kind for event in await state.load_history(trace)]
            kept = set(names)
            if len(kept) != len(names):
                found.append((f"trace {trace} has an event twice", [name for name in names if names.count(name) > 1]))
            found += [
                (f"event {asked.asked['name']} of {trace} was acknowledged and is not there", both(asked))
                for asked in events
                if asked.asked["name"] not in kept
            ]
    return found


async def updates_and_trajectories_are_kept(histories: Histories, store: Store) -> list[Violation]:
    """Every update and every trajectory that was acknowledged is in its session, once."""
    found: list[Violation] = []
    saves: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for asked in (*histories.answered("update"), *histories.answered("trajectory")):
        saves[asked.what, asked.asked["session"]].append(asked)
    async with StateStore(store.url) as state:
        for (what, session), asked_here in saves.items():
            if what == "update":
                names = [update.update_id for update in await state.list_updates(session, limit=100_000)]
            else:
                names = list(await state.list_traces(session, limit=100_000))
            found += [
                (f"{what} {each.asked['name']} was acknowledged and is not there once", both(each))
                for each in asked_here
                if names.count(each.asked["name"]) != 1
            ]
    return found


def memory_is_linearizable(histories: Histories, _store: Store) -> Iterator[Violation]:
    """A memory state changes only from the version that its writer read."""
    memories: dict[str, list[linear.Operation]] = defaultdict(list)
    for asked in histories.answered("recall"):
        assert asked.answer is not None
        version, value = asked.answer["version"], asked.answer["value"]
        memories[asked.asked["memory"]].append(linear.Operation("read", version, value, asked.began, asked.ended))
    for asked in histories.requests["remember"]:
        done = None if asked.answer is None else asked.answer["done"]
        version, value = asked.asked["version"], asked.asked["value"]
        write = linear.Operation("write", version, value, asked.began, asked.ended, done)
        memories[asked.asked["memory"]].append(write)
    for memory, operations in memories.items():
        for sentence in linear.violations(operations):
            yield f"{memory}: {sentence}", []


def pauses_are_taken_once(histories: Histories, _store: Store) -> Iterator[Violation]:
    """Of several callers that take a pause, one gets it."""
    takers: dict[str, list[Asked]] = defaultdict(list)
    for asked in histories.answered("take"):
        assert asked.answer is not None
        if asked.answer["got"]:
            takers[asked.asked["token"]].append(asked)
    for token, taken in takers.items():
        if len(taken) > 1:
            yield f"{token} was taken {len(taken)} times", [line for asked in taken for line in both(asked)]


async def artifacts_are_whole(histories: Histories, store: Store) -> list[Violation]:
    """Every acknowledged artifact exists, byte for byte."""
    found: list[Violation] = []
    async with StateStore(store.url) as state:
        for asked in histories.answered("artifact"):
            assert asked.answer is not None
            data = await state.artifact_store.get(asked.answer["id"])
            if data is None or hashlib.sha256(data).hexdigest() != asked.answer["digest"]:
                found.append((f"artifact {asked.answer['id']} is not what was put there", both(asked)))
    return found


def results_are_decided_once(histories: Histories, _store: Store) -> Iterator[Violation]:
    """Of several decisions on a result that waits, one counts."""
    decided: dict[str, list[Asked]] = defaultdict(list)
    for asked in histories.answered("decide"):
        assert asked.answer is not None
        if asked.answer["done"]:
            decided[asked.asked["patch"]].append(asked)
    for patch, found in decided.items():
        if len(found) > 1:
            yield (
                f"the result {patch} was decided {len(found)} times",
                [line for asked in found for line in both(asked)],
            )


async def contexts_are_the_merge_of_acknowledged_results(histories: Histories, store: Store) -> list[Violation]:
    """Every result whose merge or approval was acknowledged is in the context of its session."""
    found: list[Violation] = []
    merged: dict[str, list[Asked]] = defaultdict(list)
    for asked in (*histories.answered("merge"), *histories.answered("decide")):
        assert asked.answer is not None
        if asked.answer.get("done", True):
            merged[asked.asked["session"]].append(asked)
    async with StateStore(store.url) as state, SessionManager(state_store=state) as sessions:
        for name, merges in merged.items():
            session = await sessions.get_or_create(name)
            results = session.get_background_results()
            found += [
                (f"{asked.asked['name']} was merged into {name} and is not there", both(asked))
                for asked in merges
                if asked.asked["name"] not in results
            ]
    return found


async def tasks_of_sessions_end_once(histories: Histories, store: Store) -> list[Violation]:
    """A task of a session ends once, with the result of one of its runs; if its process dies, another runs it again.

    Without an acknowledged result, it may also end in one of the ways of `GIVEN_UP`.
    """
    found: list[Violation] = []
    runs = {note["key"]: note["task"] for note in histories.notes["task_run"]}

    async def again(runtime: TaskRuntime) -> str:
        runs[key := f"checker-{len(runs)}"] = runtime.state.task_id
        return key

    async with (
        StateStore(store.url) as state,
        SessionManager(state_store=state, limits=LIMITS, recover=lambda _task: again) as sessions,
    ):
        for asked in histories.answered("spawn"):
            assert asked.answer is not None
            session = await sessions.get_or_create(asked.asked["session"])
            wrong = await _ends(session, asked.asked["task"], asked.answer["result"], runs)
            found += [(sentence, both(asked)) for sentence in wrong]
    return found


async def _ends(session: StreamingSession, name: str, result: str | None, runs: Mapping[str, str]) -> list[str]:
    """Wait until this task ends. Return what is wrong; ``result`` is its acknowledged result."""
    task = await session.get_task(name)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            while task is not None and not is_over(task):
                await asyncio.sleep(0.05)
                task = await session.get_task(name)
    if task is None:
        return [f"task {name} of {session.session_id} was acknowledged and is not there"]
    if result is None and (task.status, str(task.error).partition(": ")[0]) in GIVEN_UP:
        return []
    if task.status != TaskStatus.COMPLETE:
        return [f"task {name} of {session.session_id} is {task.status.value}: {task.error}"]
    wrong = []
    if runs.get(str(task.result)) != name or result not in (None, task.result):
        wrong.append(f"task {name} of {session.session_id} has the result {task.result}, and {result} was answered")
    updates = await session.list_updates(task_id=name, limit=100)
    count = [update.update_type for update in updates].count(UpdateType.RESULT)
    if count > 1:
        wrong.append(f"task {name} of {session.session_id} has {count} results")
    return wrong
