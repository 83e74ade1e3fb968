"""Reports on a task for operators: its attempts, steps and steering."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from pydantic_core import from_json

from keelbolt.kernel import Entry, Scope, WorkItem
from keelbolt.tasks.families import EVENTS, QUEUE
from keelbolt.tasks.stored_tasks import StoredTask, StoredTasks

UNREPORTED = ("started", "asked")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start or takeover of a turn by a worker."""

    turn: int
    attempt: int
    worker: str
    at: int


@dataclass(frozen=True, slots=True)
class StepReport:
    """The last known state of a step. In doubt: it started, its end is not recorded, and no process runs it."""

    turn: int
    step: str
    state: str
    in_doubt: bool
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Steered:
    """A request that came through the inbox."""

    kind: str
    source: str
    reason: str
    at: int


@dataclass(frozen=True, slots=True)
class ArtifactSummary:
    """An artifact without its content. ``chunks`` is the number of chunks that were written."""

    artifact_id: str
    name: str
    chunks: int
    turn: int
    sealed: bool


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """An exception of the worker, for operators."""

    turn: int
    attempt: int
    type: str
    message: str
    traceback: str
    at: int


@dataclass(slots=True)
class TaskReport:
    """A task without its content. If its log was trimmed (``floor`` > 0), earlier attempts and steering are missing."""

    task: StoredTask
    item: WorkItem | None
    floor: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    steps: list[StepReport] = field(default_factory=list)
    steering: list[Steered] = field(default_factory=list)
    artifacts: list[ArtifactSummary] = field(default_factory=list)
    errors: list[WorkerFailure] = field(default_factory=list)

    @property
    def in_doubt(self) -> list[StepReport]:
        return [step for step in self.steps if step.in_doubt]


async def report(store: StoredTasks, scope: Scope, task_id: str) -> TaskReport:
    """Return the report on a task. Raises TaskNotFoundError."""
    task = await store.load(scope, task_id)
    item = await scope.work(QUEUE, task_id)
    log = await scope.log_state(EVENTS, task_id)
    found = TaskReport(task, item, log.floor)
    steps = {(task.view.turn, name): (step.state, step.run, None) for name, step in task.view.steps.items()}
    known = await _read(found)
    held = item is not None and item.holder is not None
    for (turn, name), (state, run, at) in (steps | known).items():
        if not name.startswith("~"):  # internal steps, such as sleeps
            at_work = held and (turn, run) == (task.view.turn, task.view.run) and state == "started"
            found.steps.append(StepReport(turn, name, state, state in UNREPORTED and not at_work, at))
    for artifact_id, artifact in task.view.artifacts.items():
        name = from_json(b"{%b}" % artifact.about).get("name", "")
        chunks = sum(artifact.parts.segments) + len(artifact.parts.tail)
        found.artifacts.append(ArtifactSummary(artifact_id, name, chunks, artifact.turn, artifact.sealed))
    return found


Known = dict[tuple[int, str], tuple[str, int, int | None]]  # (turn, step) → state, run, time


async def _read(found: TaskReport) -> Known:
    """Collect attempts, steering and errors; return the steps of all turns that the log still holds."""
    known: Known = {}
    turn = run = attempt = 0
    async for entry in _entries(found.task):
        body = from_json(entry.data) if entry.kind in ("attempt", "step", "steer", "error") else {}
        match entry.kind:
            case "attempt":
                run = run + 1 if body["turn"] == turn else 1
                turn, attempt = body["turn"], body["attempt"]
                found.attempts.append(Attempt(turn, body["attempt"], body["worker"], entry.at))
            case "step":
                known[turn, body["step"]] = (body["state"], run, entry.at)
            case "steer":
                steered = Steered(body["kind"], body.get("source", ""), body.get("reason", ""), entry.at)
                found.steering.append(steered)
            case "error":
                texts = body["type"], body["message"], body["traceback"]
                found.errors.append(WorkerFailure(turn, attempt, *texts, entry.at))
            case _:
                pass
    return known if not found.floor else {}


async def _entries(task: StoredTask) -> AsyncIterator[Entry]:
    after = None
    while True:
        page = await task.scope.read_log(EVENTS, task.record.task_id, after=after)
        for entry in page.entries:
            yield entry
        if not page.entries or page.entries[-1].seq >= page.head:
            return
        after = page.entries[-1].seq
