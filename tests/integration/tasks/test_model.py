"""Random operations on one task, on every engine, compared with a small model.

A process is an engine with a Puppet as its worker, which executes commands. Processes start, die and are stopped; the
client sends, answers and cancels; the log is trimmed behind its snapshots. After every step the stored task equals the
model: its state, history and artifacts, and its log, which has no gap and at most one terminal event.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pydantic_core import from_json

from keelbolt.errors import TaskNotCancelableError, TaskTerminalStateError
from keelbolt.kernel import Trim
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext, TaskEngine
from keelbolt.tasks import view as view_module
from keelbolt.tasks.families import EVENTS, QUEUE, SNAPSHOTS
from keelbolt.tasks.notes import StatusNote, read_note
from tests.integration.tasks.conftest import ENGINES, store_url
from tests.integration.tasks.stage import Stage, look, message, until

T = TypeVar("T")
S = TaskState
PARTITION = "~anonymous"
MAX_ATTEMPTS = 3


class ScriptedWorker:
    """A worker that executes commands one by one until its turn ends."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []  # the text of each turn's message, and the attempt
        self.actions: asyncio.Queue[tuple[Callable[[TaskContext], Awaitable[Any]], asyncio.Future[Any]]] = (
            asyncio.Queue()
        )

    async def __call__(self, ctx: TaskContext) -> None:
        self.begun.append((ctx.user_text, ctx.attempt))
        while not ctx.turn_ended:
            action, answer = await self.actions.get()
            answer.set_result(await action(ctx))

    async def do(self, action: Callable[[TaskContext], Awaitable[Any]]) -> Any:
        answer = asyncio.get_running_loop().create_future()
        await self.actions.put((action, answer))
        return await asyncio.wait_for(answer, 20.0)


class Model:
    """The expected state of a task."""

    def __init__(self, text: str) -> None:
        self.state = S.submitted
        self.history = [text]
        self.turn = 1
        self.text = text  # text of the turn's message
        self.attempt = 1
        self.artifacts: dict[str, list[str]] = {}
        self.steps: list[int] = []  # results of this turn's steps
        self.pending: list[str] = []
        self.cancel_waits = False
        self.held = False  # a process holds the task, alive or dead
        self.dead_letter = False
        self.new_run()

    @property
    def running(self) -> bool:
        return self.state in (S.submitted, S.working)

    def new_run(self) -> None:
        self.streaming = False
        self.step = 0

    def new_turn(self, text: str) -> None:
        self.turn += 1
        self.text = text
        self.steps = []
        self.new_run()

    def end(self, state: TaskState, reply: str | None) -> bool:
        """End the turn; return whether another one begins at once."""
        if reply is not None:
            self.history.append(reply)
        if self.pending and state in (S.completed, S.input_required):
            text = self.pending.pop(0)
            self.history.append(text)
            self.new_turn(text)
            return True
        self.state = state
        self.pending = []
        self.held = False
        return False


class OneTask(RuleBasedStateMachine):
    """One task; ``places`` provides empty stores."""

    places: ClassVar[Callable[[], str]]
    rules_made: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stage = Stage(type(self).places())
        self.process: TaskEngine | None = None
        self.scripted = ScriptedWorker()
        self.count = 0
        self.cut_ends = 0  # terminal events below the floor

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 30.0))

    def teardown(self) -> None:
        self.run(self.stage.__aexit__(None, None, None))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def number(self) -> int:
        self.count += 1
        return self.count

    @initialize(alive=st.booleans())
    def create(self, alive: bool) -> None:
        self.run(self._create(alive=alive))

    async def _create(self, *, alive: bool) -> None:
        self.front = await self.stage.engine(max_attempts=MAX_ATTEMPTS)
        if alive:
            await self._start()
        sent = await (self.process or self.front).tasks.send(message("first"))
        self.task_id = sent.task.record.task_id
        self.model = Model("first")
        if alive:
            await self._begins()

    # ------------------------------------------------------------------------------------------------- processes

    async def _start(self) -> None:
        self.scripted = ScriptedWorker()
        self.begins = 0
        self.process = await self.stage.engine(self.scripted, max_attempts=MAX_ATTEMPTS, cancel_seconds=0.0)

    async def _begins(self) -> None:
        """Wait until the scripted worker begins the turn that the model expects."""
        self.begins += 1
        model = self.model
        model.state, model.held = S.working, True
        await until(lambda: len(self.scripted.begun) >= self.begins)
        assert self.scripted.begun[-1] == (model.text, model.attempt)

    @precondition(lambda self: self.process is None)
    @rule()
    def start_process(self) -> None:
        self.run(self._start_process())

    async def _start_process(self) -> None:
        model = self.model
        await self._start()
        if not model.running:
            return
        if model.held and model.attempt == MAX_ATTEMPTS:
            await self._becomes(S.failed)
            model.history.append("The agent's process died each time it worked on this task; it was given up.")
            model.dead_letter = True
            return
        if model.held:
            model.attempt += 1
        if model.cancel_waits:
            await self._becomes(S.canceled)
            return
        model.new_run()
        await self._begins()

    async def _becomes(self, state: TaskState) -> None:
        async def there() -> bool:
            return (await self.front.tasks.load(self.task_id)).view.state is state

        await until(there)
        self.model.state = state
        self.model.pending = []
        self.model.held = False

    @precondition(lambda self: self.process is not None)
    @rule()
    def crash(self) -> None:
        assert self.process is not None
        self.run(self.stage.crash(self.process))
        self.process = None

    @precondition(lambda self: self.process is not None)
    @rule()
    def stop_process(self) -> None:
        """Stop the process gracefully: running tasks are released, and no attempt is counted."""
        assert self.process is not None
        self.run(self.process.__aexit__(None, None, None))
        self.process = None
        self.model.held = False

    # ---------------------------------------------------------------------------------------------------- worker

    def works(self) -> bool:
        return self.process is not None and self.model.state is S.working

    @precondition(works)
    @rule(count=st.integers(1, 12))
    def chunks(self, count: int) -> None:
        model = self.model
        name = f"turn-{model.turn}"
        texts = [f"chunk {self.number()}" for _ in range(count)]

        async def emit(ctx: TaskContext) -> None:
            for text in texts:
                await ctx.emit_text_artifact(text, artifact_id=name, append=True)
            await ctx._run.journal.settle()

        self.run(self.scripted.do(emit))
        if not model.streaming:
            model.artifacts[name] = []  # unfinished output of an earlier run of this turn
        model.streaming = True
        model.artifacts[name] += texts

    @precondition(works)
    @rule()
    def status(self) -> None:
        self.run(self.scripted.do(lambda ctx: ctx.send_status("busy")))

    @precondition(works)
    @rule()
    def step(self) -> None:
        """Run a step: a recorded one returns its result, a new one is executed."""
        model = self.model
        result = self.run(self.scripted.do(lambda ctx: ctx.step("s", self.number, idempotent=True)))
        if model.step < len(model.steps):
            assert result == model.steps[model.step]
        else:
            model.steps.append(self.count)
            assert result == self.count
        model.step += 1

    @precondition(works)
    @rule()
    def crash_in_step(self) -> None:
        """Kill the process during a step: the step is not recorded."""
        if self.model.step >= len(self.model.steps):
            self.run(self._crash_in_step())

    async def _crash_in_step(self) -> None:
        entered = asyncio.Event()

        async def hangs() -> None:
            entered.set()
            await asyncio.sleep(60)

        async def action(ctx: TaskContext) -> None:
            await ctx.step("s", hangs, idempotent=True)

        doing = asyncio.ensure_future(self.scripted.do(action))
        await asyncio.wait_for(entered.wait(), 20.0)
        assert self.process is not None
        await self.stage.crash(self.process)
        self.process = None
        doing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await doing

    @precondition(works)
    @rule(how=st.sampled_from(["complete", "respond", "fail", *["pause"] * 9]))
    def end_turn(self, how: str) -> None:
        self.run(self._end_turn(how))

    async def _end_turn(self, how: str) -> None:
        reply = f"{how} {self.number()}"
        actions: dict[str, tuple[Callable[[TaskContext], Awaitable[None]], TaskState, str | None]] = {
            "complete": (lambda ctx: ctx.complete(), S.completed, None),
            "respond": (lambda ctx: ctx.respond(reply), S.completed, reply),
            "fail": (lambda ctx: ctx.fail(reply), S.failed, reply),
            "pause": (lambda ctx: ctx.request_input(reply), S.input_required, reply),
        }
        action, state, words = actions[how]
        await self.scripted.do(action)
        if self.model.end(state, words):
            await self._begins()

    # ---------------------------------------------------------------------------------------------------- client

    @rule(beside=st.booleans())
    def send(self, beside: bool) -> None:
        """Send an answer, a message to a running task, or a late one; to the worker's process or another."""
        self.run(self._send(beside=beside))

    async def _send(self, *, beside: bool) -> None:
        model = self.model
        engine = self.front if beside or self.process is None else self.process
        text = f"message {self.number()}"
        sending = engine.tasks.send(message(text, task_id=self.task_id))
        if model.state.terminal:
            with pytest.raises(TaskTerminalStateError):
                await sending
            return
        await sending
        if model.state.paused:
            model.history.append(text)
            model.new_turn(text)
            model.state, model.attempt = S.submitted, 1
            if self.process is not None:
                await self._begins()
        else:
            model.pending.append(text)

    @rule(beside=st.booleans(), meant=st.integers(0, 5))
    def cancel(self, beside: bool, meant: int) -> None:
        if meant == 5:  # rare, because otherwise most tasks would be short
            self.run(self._cancel(beside=beside))

    async def _cancel(self, *, beside: bool) -> None:
        model = self.model
        engine = self.front if beside or self.process is None else self.process
        if model.state.terminal:
            with pytest.raises(TaskNotCancelableError):
                await engine.tasks.cancel(self.task_id)
        elif model.held and self.process is None:  # no process reads it now; the next process does
            await engine.tasks.cancel(self.task_id, seconds=0.001)
            model.cancel_waits = True
        else:
            await engine.tasks.cancel(self.task_id, seconds=20.0)
            await self._becomes(S.canceled)

    @rule()
    def compact(self) -> None:
        """Trim the log behind its snapshot."""
        self.run(self._compact())

    async def _compact(self) -> None:
        kernel = self.front.kernel
        snapshot = await kernel.get(PARTITION, SNAPSHOTS, self.task_id)
        if snapshot is not None:
            floor = from_json(snapshot.body)["seq"]
            self.cut_ends += await self._ends(floor)
            await kernel.commit(PARTITION, Trim(EVENTS, self.task_id, floor))

    # ------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def as_the_model_says(self) -> None:
        type(self).rules_made += 1
        self.run(self._compare())

    async def _compare(self) -> None:
        model = self.model
        task = await look(self.front, self.task_id)
        assert task.status.state is model.state
        assert [entry.text for entry in task.history] == model.history
        assert {made.artifact_id: [part.text for part in made.parts] for made in task.artifacts} == model.artifacts
        await self._compare_log()
        item = await self.front.kernel.work(PARTITION, QUEUE, self.task_id)
        if model.running:
            assert item is not None
            assert item.state == ("held" if model.held else "waiting")
        elif model.dead_letter:
            assert item is not None
            assert item.state == "dead"

    async def _compare_log(self) -> None:
        state = await self.front.kernel.log_state(PARTITION, EVENTS, self.task_id)
        assert self.cut_ends + await self._ends(state.head) == int(self.model.state.terminal)
        record = await self.front.store.record(self.front.kernel.scoped(PARTITION), self.task_id)
        assert record is not None
        assert record.state is self.model.state

    async def _ends(self, upto: int) -> int:
        """Return the number of terminal events up to this seq, in a log without gaps."""
        kernel = self.front.kernel
        seq = (await kernel.log_state(PARTITION, EVENTS, self.task_id)).floor
        ends = 0
        while seq < upto:
            page = await kernel.read_log(PARTITION, EVENTS, self.task_id, after=seq, before=upto + 1)
            for entry in page.entries:
                assert entry.seq == seq + 1
                seq = entry.seq
                note = read_note(entry)
                ends += isinstance(note, StatusNote) and note.state.terminal
        return ends


AMOUNTS = {"memory": (60, 50), "sqlite": (10, 40), "postgres": (5, 30), "redis": (10, 40)}  # histories, steps of each


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ENGINES)
def test_one_task(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """The task equals the model after any sequence of operations and crashes."""
    monkeypatch.setattr(view_module, "SNAPSHOT_ENTRIES", 12)
    monkeypatch.setattr(view_module, "SEGMENT_MIN_BYTES", 100)
    numbers = iter(range(100_000))

    def place() -> str:
        path = tmp_path / str(next(numbers))
        path.mkdir()
        return store_url(engine, request, path)

    machine = type("Machine", (OneTask,), {"places": staticmethod(place), "rules_made": 0})
    histories, steps = AMOUNTS[engine]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories * (10 if full else 1),
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert machine.rules_made >= histories  # type: ignore[attr-defined]
