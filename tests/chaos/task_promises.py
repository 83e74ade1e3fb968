"""Promises of tasks. Each function returns violations: a sentence, and the shortest history that shows it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from typing import Any

from keelbolt.auth.principal import Principal
from keelbolt.data.erasing import PARTITION as ERASURES_PARTITION
from keelbolt.data.erasing import declare
from keelbolt.data.families import ERASURES
from keelbolt.kernel import Entry, Scope
from keelbolt.protocol.types import TaskState
from keelbolt.tasks.families import EVENTS, FACE, INBOX, QUEUE
from keelbolt.tasks.notes import WIRE_KINDS
from tests.chaos.agent import OWNERS
from tests.chaos.client import digest
from tests.chaos.final import Store, Violation, began_after, both
from tests.chaos.history import Asked, Histories

LATE_SECONDS = 10.0  # a stopped or starved process may record a run this late
RETURNING = ("send", "answer", "decision", "get", "cancel", "stream")  # requests that return the state of a task


def erasable(histories: Histories) -> frozenset[str]:
    """Return the tasks that a process tried to erase, and those that the sweep erases: it takes only canceled ones."""
    ended = {
        asked.answer["task"]
        for what in RETURNING
        for asked in histories.answered(what)
        if asked.answer is not None and asked.answer["state"] is not None
        if TaskState(asked.answer["state"]).terminal and asked.answer["state"] != TaskState.canceled
    }
    canceled = {asked.asked["task"] for asked in histories.requests["cancel"]} - ended
    return frozenset(canceled | {asked.asked["task"] for asked in histories.requests["erase"]})


def acknowledged_is_present(histories: Histories, store: Store) -> Iterator[Violation]:
    """Acknowledged means committed: every acknowledged task is in the store."""
    for asked in (found for what in ("send", "stream", "answer", "decision") for found in histories.answered(what)):
        assert asked.answer is not None
        task = asked.answer.get("task")
        if task is not None and task not in store.logs and task not in store.erased:
            yield f"task {task} was acknowledged and is not in the store", both(asked)


def sends_succeed(histories: Histories, store: Store) -> Iterator[Violation]:
    """A valid message is not refused, unless its task is erased before the response."""
    for asked in histories.answered("send"):
        assert asked.answer is not None
        if asked.answer["error"] is not None and not _names_one_of(store.erased, asked.answer["error"]):
            yield f"a send was refused: {asked.answer['error'].get('message')}", both(asked)


def _names_one_of(tasks: Container[str], error: Mapping[str, Any]) -> bool:
    """Return whether this error says that one of these tasks is not found."""
    details = error.get("data") or [{}]
    return details[0].get("reason") == "TASK_NOT_FOUND" and details[0]["metadata"]["taskId"] in tasks


def repeats_lead_to_one_task(histories: Histories, store: Store) -> Iterator[Violation]:
    """Sending is idempotent, by Idempotency-Key or by the message itself."""
    reached: dict[str, tuple[str, Asked]] = {}
    for asked in (*histories.answered("send"), *histories.answered("stream")):
        assert asked.answer is not None
        task, message = asked.answer.get("task"), asked.asked["message"]
        if task is None or task in store.erased:  # a repeated message then creates a new task
            continue
        first = reached.setdefault(message, (task, asked))
        if first[0] != task:
            yield f"message {message} reached tasks {first[0]} and {task}", [*both(first[1]), *both(asked)]
    for message, tasks in store.messages.items():
        if len(tasks) > 1:
            yield f"message {message} made {len(tasks)} tasks", list(tasks)


def logs_are_dense_with_one_end(_histories: Histories, store: Store) -> Iterator[Violation]:
    """The log of a task is dense, with exactly one terminal event, and every task ends."""
    for task, entries in store.logs.items():
        if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
            yield f"the log of task {task} is not dense", [entry.seq for entry in entries]
        states = [json.loads(entry.data)["status"]["state"] for entry in entries if entry.kind in ("status", "said")]
        ends = [state for state in states if TaskState(state).terminal]
        if len(ends) > 1:
            yield f"task {task} ended {len(ends)} times", states
        elif not ends and not TaskState(states[-1]).paused:
            yield f"task {task} never ended", states


def streams_show_what_is_stored(histories: Histories, store: Store) -> Iterator[Violation]:
    """Readers see committed data only, each event once, in order, without a gap."""
    for asked in histories.answered("stream"):
        assert asked.answer is not None
        if asked.answer["task"] in store.erased:
            continue
        entries = {entry.seq: entry for entry in store.logs.get(asked.answer["task"], ())}
        wire = [seq for seq, entry in entries.items() if entry.kind in WIRE_KINDS]
        seen = [seq for seq, _ in asked.answer["events"]]
        first, *others = asked.answer["snapshots"]
        if others:
            yield f"a stream of task {asked.answer['task']} began anew at {others}", both(asked)
            continue
        expected = [seq for seq in wire if seq > first]
        if seen != expected:
            yield f"a stream of task {asked.answer['task']} showed {seen}, the log has {expected}", both(asked)
            continue
        for seq, shown in asked.answer["events"]:
            entry = entries[seq]
            kind = "artifactUpdate" if entry.kind == "artifact" else "statusUpdate"
            if digest({kind: json.loads(entry.data)}) != shown:
                yield f"event {seq} of task {asked.answer['task']} was shown otherwise than it is stored", both(asked)


def one_holder_per_fence(histories: Histories, _store: Store) -> Iterator[Violation]:
    """One writer per task: fences rise, and each belongs to one worker."""
    for task in {note["task"] for note in histories.notes["run"]}:
        notes = histories.runs_of(task)
        holders: dict[int, str] = {}
        highest = notes[0]
        for note in notes:
            if holders.setdefault(note["fence"], note["worker"]) != note["worker"]:
                yield f"two workers ran task {task} with fence {note['fence']}", notes
            if note["fence"] < highest["fence"] and note["at"] > highest["at"] + LATE_SECONDS:
                yield f"the fences of task {task} do not rise", [highest, note]
            highest = max(highest, note, key=lambda each: int(each["fence"]))


def a_worker_that_lost_its_task_writes_no_more(_histories: Histories, store: Store) -> Iterator[Violation]:
    """One writer per task: no chunk follows a chunk of a higher fence."""
    for task, entries in store.logs.items():
        chunks = [json.loads(entry.data)["artifact"]["parts"] for entry in entries if entry.kind == "artifact"]
        texts = [part["text"] for parts in chunks for part in parts if ":" in part.get("text", "")]
        fences = [int(text.partition(":")[0]) for text in texts]
        if fences != sorted(fences):
            yield f"chunks of task {task} were written with the fences {fences}", texts


def recorded_steps_are_not_repeated(histories: Histories, _store: Store) -> Iterator[Violation]:
    """A step that was recorded has no effect in a later run."""
    recorded: dict[tuple[str, int], dict[str, Any]] = {}
    events = sorted((*histories.notes["effect"], *histories.notes["recorded"]), key=lambda note: note["at"])
    for note in events:
        place = (note["task"], note["step"])
        if note["what"] == "recorded":
            recorded.setdefault(place, note)
        elif place in recorded and began_after(histories, note, place[0], recorded[place]):
            yield f"step {place[1]} of task {place[0]} was recorded, and done again", [recorded[place], note]


def ends_stay(histories: Histories, store: Store) -> Iterator[Violation]:
    """A task whose end was returned to a client keeps this end."""
    for what in RETURNING:
        for asked in histories.answered(what):
            assert asked.answer is not None
            task, state = asked.answer.get("task"), asked.answer.get("state")
            if task not in store.logs or state is None or not TaskState(state).terminal:
                continue
            stored = _last_state(store.logs[task])
            if stored != state:
                yield f"task {task} was answered as {state} and is {stored}", both(asked)


def acknowledged_is_found(histories: Histories, store: Store) -> Iterator[Violation]:
    """A task that was acknowledged is found by its owner."""
    for asked in histories.answered("get"):
        assert asked.answer is not None
        if asked.answer["error"] is not None and asked.asked["task"] not in store.erased:
            yield f"task {asked.asked['task']} was acknowledged and not found", both(asked)


def erased_is_gone(histories: Histories, store: Store) -> Iterator[Violation]:
    """A task whose erasure was acknowledged is not in the store, and no caller sees it afterwards."""
    gone = {asked.asked["task"]: asked for asked in histories.answered("erase")}
    for task, asked in gone.items():
        if task in store.logs:
            yield f"task {task} was erased and is in the store", both(asked)
    for seen in histories.answered("get"):
        assert seen.answer is not None
        erased = gone.get(seen.asked["task"])
        if erased is not None and seen.began > erased.ended and seen.answer["error"] is None:
            yield f"task {seen.asked['task']} was erased and shown afterwards", [*both(erased), *both(seen)]


async def nothing_is_left_of_erased_tasks(histories: Histories, store: Store) -> list[Violation]:
    """Nothing is left of an erased task. A process that dies while it erases leaves a record of the erasure."""
    acknowledged = {asked.asked["task"]: both(asked) for asked in histories.answered("erase")}
    await declare(store.kernel)
    found: list[Violation] = []
    recorded = await _recorded_erasures(store.kernel.scoped(ERASURES_PARTITION))
    for owner in OWNERS:
        scope = store.kernel.scoped(Principal(owner).partition)
        unfinished = recorded + await _recorded_erasures(scope)
        for task in sorted(store.erased - store.logs.keys()):
            left = await _left(scope, task)
            if left and (task in acknowledged or task not in unfinished):
                sentence = f"task {task} was erased and has left: {', '.join(left)}"
                found.append((sentence, acknowledged.get(task, [])))
    return found


async def _recorded_erasures(scope: Scope) -> str:
    """Return the records of unfinished erasures in this scope."""
    page = await scope.list_work(ERASURES, state="waiting", limit=1000)
    records = [await scope.get(ERASURES, item.key) for item in page.items]
    return "".join(record.body.decode() for record in records if record is not None)


async def _left(scope: Scope, task: str) -> list[str]:
    """Return what is left of a task without a record."""
    left = [
        family.title for family, lookup in FACE.members("task") async for _ in lookup(scope, family.collection, task)
    ]
    left += [log for log in (EVENTS, INBOX) if (await scope.log_state(log, task)).head]
    if await scope.work(QUEUE, task) is not None:
        left.append(QUEUE)
    return left


def owners_see_only_their_own(histories: Histories, _store: Store) -> Iterator[Violation]:
    """A caller sees only its own data."""
    for asked in histories.answered("spy"):
        assert asked.answer is not None
        if asked.answer["found"]:
            yield f"task {asked.asked['task']} was shown to another owner", both(asked)


def webhooks_are_complete_and_in_order(histories: Histories, store: Store) -> Iterator[Violation]:
    """Webhooks are delivered at least once, in order."""
    arrived: dict[str, list[int]] = defaultdict(list)
    for note in histories.notes["arrival"]:
        arrived[note["task"]].append(note["seq"])
    hooked = {note["message"] for note in histories.notes["hooked"]}
    for message in hooked:
        for task in store.messages.get(message, ()):
            if task in store.erased:
                continue
            wire = [entry.seq for entry in store.logs[task] if entry.kind in WIRE_KINDS]
            first_times = list(dict.fromkeys(arrived[task]))
            if first_times != wire:
                yield f"webhooks of task {task} arrived as {first_times}, the log has {wire}", arrived[task]


def _last_state(entries: list[Entry]) -> str:
    states = [json.loads(entry.data)["status"]["state"] for entry in entries if entry.kind in ("status", "said")]
    return str(states[-1])
