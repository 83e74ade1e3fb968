"""Checks that must hold for every task after any deaths of processes, on its log and on the workers' notes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.kernel import Entry, Kernel
from keelbolt.tasks import TaskState
from keelbolt.tasks.families import EVENTS, QUEUE
from keelbolt.tasks.notes import WIRE_KINDS
from keelbolt.tasks.stored_tasks import StoredTasks

MAX_ATTEMPTS = 5


@dataclass(slots=True)
class TaskVerdict:
    """The numbers of checked items, and the problems found."""

    tasks: int = 0
    entries: int = 0
    takeovers: int = 0
    acknowledged: int = 0
    effects: int = 0
    dead: int = 0
    wrong: list[str] = field(default_factory=list)

    def numbers(self) -> dict[str, int]:
        return {
            "tasks": self.tasks,
            "entries": self.entries,
            "takeovers": self.takeovers,
            "acknowledged": self.acknowledged,
            "dead_lettered": self.dead,
            "violations": len(self.wrong),
        }

    def assert_clean(self) -> None:
        assert not self.wrong, "\n".join(self.wrong[:20])


Notes = Sequence[dict[str, Any]]


async def verify_tasks(kernel: Kernel, tasks: Iterable[str], notes: Notes) -> TaskVerdict:
    """Check these tasks, which must all be over, and the whole store."""
    verdict = TaskVerdict()
    by_task: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for note in notes:
        if "task" in note:
            by_task[note["task"]].append(note)
    for task_id in tasks:
        await _look(kernel, task_id, by_task[task_id], verdict)
    verdict.wrong += [f"check: {problem.where}: {problem.what}" async for problem in kernel.check()]
    return verdict


async def read_all(kernel: Kernel, task_id: str) -> list[Entry]:
    entries: list[Entry] = []
    while True:
        page = await kernel.read_log(ANONYMOUS.partition, EVENTS, task_id, after=len(entries))
        entries += page.entries
        if not page.entries:
            assert page.head == len(entries)
            return entries


async def _look(kernel: Kernel, task_id: str, notes: Notes, verdict: TaskVerdict) -> None:
    entries = await read_all(kernel, task_id)
    verdict.tasks += 1
    verdict.entries += len(entries)

    def wrong(what: str) -> None:
        verdict.wrong.append(f"task {task_id}: {what}")

    if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
        wrong("its seqs are not 1..n")
    _look_at_end(entries, wrong)
    task = await StoredTasks(kernel).load(kernel.scoped(ANONYMOUS.partition), task_id)
    states = [state for state in map(_state, entries) if state is not None]
    if not task.record.state.terminal or task.record.state is not states[-1]:
        wrong(f"its record is {task.record.state.name}, its log says {states[-1].name}")
    item = await kernel.work(ANONYMOUS.partition, QUEUE, task_id)
    if item is not None and (item.state != "dead" or states[-1] is not TaskState.failed):
        wrong(f"its work item is {item.state}")
    verdict.dead += item is not None
    _look_at_runs(entries, notes, verdict, wrong)
    _look_at_steps(entries, notes, verdict, wrong)
    text = b"\n".join(entry.data for entry in entries)
    for note in notes:
        if note["kind"] == "acknowledged":
            verdict.acknowledged += 1
            if f'"{note["text"]}"'.encode() not in text:
                wrong(f"{note['text']!r} was acknowledged and is not there")


def _look_at_end(entries: list[Entry], wrong: Any) -> None:
    ends = [entry.seq for entry in entries if (state := _state(entry)) is not None and state.terminal]
    if len(ends) != 1:
        wrong(f"it ended {len(ends)} times")
    elif any(entry.kind in WIRE_KINDS for entry in entries[ends[0] :]):
        wrong("it went on after its end")


def _look_at_runs(entries: list[Entry], notes: Notes, verdict: TaskVerdict, wrong: Any) -> None:
    """Check that a turn has at most five attempts, fences grow, and a run writes only until the next one begins."""
    fences = {(note["worker"], note["attempt"]): note["fence"] for note in notes if note["kind"] == "run"}
    attempts: dict[int, list[int]] = defaultdict(list)  # by turn
    fence: int | None = None
    last = 0
    for entry in entries:
        body = from_json(entry.data)
        if entry.kind == "attempt":
            attempts[body["turn"]].append(body["attempt"])
            fence = fences.get((body["worker"], body["attempt"]))  # none: the run was killed before it wrote the note
            if fence is not None:
                if fence <= last:
                    wrong(f"fence {fence} came after {last}")
                last = fence
        for by in _writers(body):
            if fence is not None and by != fence:
                wrong(f"entry {entry.seq} was written under fence {by}, the holder had {fence}")
            if by < last:
                wrong(f"entry {entry.seq} was written under fence {by}, after {last}")
    for counted in attempts.values():
        if counted != sorted(counted) or len(counted) > MAX_ATTEMPTS or max(counted) > MAX_ATTEMPTS:
            wrong(f"its attempts were {counted}")
        verdict.takeovers += len(counted) - 1


def _writers(body: dict[str, Any]) -> list[int]:
    """Return the fences that a worker wrote into the texts of this entry."""
    message = (body.get("status") or {}).get("message") or {}
    parts = [*message.get("parts", ()), *(body.get("artifact") or {}).get("parts", ())]
    words = [part["text"].split() for part in parts if "text" in part]
    return [int(each[0]) for each in words if each and each[0].isdigit()]


def _look_at_steps(entries: list[Entry], notes: Notes, verdict: TaskVerdict, wrong: Any) -> None:
    """Check, by the log and by the effects, that a recorded step does not run again."""
    done: dict[str, int] = {}
    for entry in entries:
        if entry.kind == "step":
            body = from_json(entry.data)
            if body["step"] in done:
                wrong(f"step {body['step']!r} was {body['state']} again at {entry.seq}, done at {done[body['step']]}")
            if body["state"] == "done":
                done[body["step"]] = entry.seq
    first: dict[int, int] = {}  # step → the fence under which it was first recorded
    for note in notes:
        if note["kind"] == "recorded":
            first[note["step"]] = min(first.get(note["step"], note["fence"]), note["fence"])
            if f"step {note['step']}" not in done:
                wrong(f"step {note['step']} was recorded and is not there")
    for note in notes:
        if note["kind"] == "effect":
            verdict.effects += 1
            if note["fence"] > first.get(note["step"], note["fence"]):
                wrong(f"step {note['step']} took effect under {note['fence']}, recorded under {first[note['step']]}")


def _state(entry: Entry) -> TaskState | None:
    return TaskState(from_json(entry.data)["status"]["state"]) if entry.kind in ("status", "said") else None
