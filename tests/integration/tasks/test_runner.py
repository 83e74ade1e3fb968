"""The runner: tasks survive their process, have one writer at a time, and end after their last attempt."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest

from keelbolt import leases as lease_module
from keelbolt.auth.principal import Principal
from keelbolt.errors import CommitInDoubt, StorageUnreachable
from keelbolt.kernel import Kernel, open_storage
from keelbolt.protocol.types import Task, TaskState
from keelbolt.tasks import Envelope, LifecycleHooks, TaskContext, TaskEngine, TaskSettings, run_state
from keelbolt.tasks import runner as runner_module
from keelbolt.tasks.families import QUEUE
from keelbolt.tasks.run_state import Stop
from keelbolt.tasks.runner import EXHAUSTED
from keelbolt.testing.postgres import PostgresServer
from keelbolt.testing.proxy import Proxy
from keelbolt.testing.worker import KernelLink
from tests.integration.tasks.stage import (
    Stage,
    answer,
    ask,
    at_most,
    bodies,
    log,
    look,
    message,
    one_end,
    state_of,
    states,
    until,
)

QUICK: dict[str, Any] = {"lease_seconds": 1.2, "heartbeat_seconds": 0.4}


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(f"You said: {ctx.user_text}")


def has_ended(engine: TaskEngine, task_id: str) -> Callable[[], Awaitable[bool]]:
    async def ended() -> bool:
        return (await engine.tasks.load(task_id)).view.state.terminal

    return ended


# ---------------------------------------------------------------------------------------------------------- takeover


async def test_takeover(stage: Stage) -> None:
    """The process of ten tasks dies: another process runs each of them once more, and ends each once."""
    runs: Counter[str] = Counter()

    async def worker(ctx: TaskContext) -> None:
        runs[ctx.task_id] += 1
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        await ctx.complete(str(ctx.attempt))

    first = await stage.engine(worker)
    sent = [await first.tasks.send(message(str(number))) for number in range(10)]
    await until(lambda: len(runs) == 10)
    second = await stage.engine(worker)
    await asyncio.sleep(0.1)
    assert set(runs.values()) == {1}  # no process claims held tasks
    await stage.crash(first)
    for one in sent:
        task = await answer(second, one)
        assert task.artifacts[0].parts[0].text == "2"
        assert await one_end(second, task.id) is TaskState.completed
        assert await states(second, task.id) == ["submitted", "working", "completed"]
    assert set(runs.values()) == {2}


async def test_takeover_within_the_lease(stage: Stage) -> None:
    """A takeover takes the length of the lease, and at most one second more."""
    begun = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        await ctx.complete()

    first = await stage.engine(worker, **QUICK)
    sent = await first.tasks.send(message())
    await until(lambda: begun)
    second = await stage.engine(worker, **QUICK)
    await stage.crash(first, expire=False)
    with at_most(2.2):
        task = await answer(second, sent)
    assert task.status.state is TaskState.completed
    assert begun == [1, 2]


async def test_a_living_process_keeps_its_tasks(stage: Stage) -> None:
    """A task may take longer than the lease: the heartbeat renews it."""
    begun = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        await asyncio.sleep(1.0)
        await ctx.complete()

    first = await stage.engine(worker, lease_seconds=0.6, heartbeat_seconds=0.1)
    await stage.engine(worker, lease_seconds=0.6, heartbeat_seconds=0.1)
    assert (await ask(first)).status.state is TaskState.completed
    assert begun == [1]


def _has(some: list[int], count: int) -> bool:
    return len(some) == count


async def test_a_dead_letter_after_the_last_attempt(stage: Stage) -> None:
    """A task whose process dies each time fails after its last attempt and is a dead letter with its reason."""
    begun = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        await asyncio.sleep(60)

    engine = await stage.engine(worker, max_attempts=3)
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    for attempt in (1, 2, 3):
        await until(partial(_has, begun, attempt))
        await stage.crash(engine)
        engine = await stage.engine(worker, max_attempts=3)
    await until(has_ended(engine, task_id))
    assert begun == [1, 2, 3]
    task = await look(engine, task_id)
    assert task.status.state is TaskState.failed
    assert task.status.message is not None
    assert task.status.message.text == EXHAUSTED
    (dead,) = (await engine.kernel.list_work("~anonymous", QUEUE, state="dead")).items
    assert (dead.key, dead.reason) == (task_id, EXHAUSTED)
    assert await one_end(engine, task_id) is TaskState.failed


async def test_a_dead_letter_that_never_started(stage: Stage) -> None:
    """A task that no process could start is submitted, then failed, and becomes a dead letter too."""
    front = await stage.engine(max_attempts=1)
    sent = await front.tasks.send(message())
    task_id = sent.task.record.task_id
    kernel = front.kernel
    (claim,) = await kernel.claim(QUEUE, "a process that dies at once", lease_seconds=0.001)
    assert claim.key == task_id
    engine = await stage.engine(echo, max_attempts=1)
    await until(has_ended(engine, task_id))
    assert await states(engine, task_id) == ["submitted", "failed"]
    assert await one_end(engine, task_id) is TaskState.failed


# ---------------------------------------------------------------------------------------------------- one writer only


@pytest.mark.parametrize("over", [False, True])
async def test_a_process_that_was_paused_can_not_write(stage: Stage, over: bool) -> None:
    """The store refuses writes of a process that lost its lease unknowingly, during and after the task."""
    gate, go_on = asyncio.Event(), asyncio.Event()
    begun, lost = [], []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        if ctx.attempt == 1:
            await gate.wait()
            try:
                await ctx.emit_text_artifact("from the grave", append=True)
                await ctx.send_status("from the grave")
            except Exception as error:
                lost.append(type(error).__name__)
                raise
        await go_on.wait()
        await ctx.complete(str(ctx.attempt))

    first = await stage.engine(worker)
    sent = await first.tasks.send(message())
    await until(lambda: begun)
    line = stage.lines[first]
    line.cut = True  # for a while; the process notices it at its next heartbeat, in 5 s
    await stage.expire(first)
    second = await stage.engine(worker)
    await until(lambda: len(begun) == 2)
    task_id = sent.task.record.task_id
    if over:
        go_on.set()
        await _elsewhere(second, task_id)
    line.cut = False
    gate.set()
    await until(lambda: lost)
    assert lost == ["TaskTerminalStateError" if over else "LeaseLost"]
    go_on.set()
    task = await _elsewhere(second, task_id)
    assert [made.parts[0].text for made in task.artifacts] == ["2"]
    assert b"from the grave" not in b"".join(entry.data for entry in await log(second, task_id))
    assert await one_end(second, task_id) is TaskState.completed
    runner = first.runner
    assert runner is not None
    await until(lambda: not runner.runs)


async def _elsewhere(engine: TaskEngine, task_id: str) -> Task:
    await until(has_ended(engine, task_id))
    return await look(engine, task_id)


async def test_a_worker_that_blocks_the_loop(stage: Stage) -> None:
    """A worker that blocks its process for longer than the lease has lost its tasks when it resumes."""
    ends = []

    async def worker(ctx: TaskContext) -> None:
        if ctx.attempt == 1:
            time.sleep(0.7)
            await asyncio.sleep(5)
        ends.append(ctx.attempt)
        await ctx.complete(str(ctx.attempt))

    engine = await stage.engine(worker, lease_seconds=0.5, heartbeat_seconds=0.1)
    sent = await engine.tasks.send(message())
    task = await answer(engine, sent)
    assert ends == [2]
    assert task.artifacts[0].parts[0].text == "2"
    assert await one_end(engine, task.id) is TaskState.completed


async def test_self_fencing(stage: Stage) -> None:
    """A process that can't reach the store stops its tasks before its lease ends; later it gets a new incarnation."""
    stopped: list[float] = []
    begun = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        if len(begun) == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                stopped.append(time.monotonic())
                raise
        await ctx.complete(str(ctx.attempt))

    engine = await stage.engine(worker, lease_seconds=1.0, heartbeat_seconds=0.3)
    sent = await engine.tasks.send(message())
    await until(lambda: begun)
    runner = engine.runner
    assert runner is not None
    name = runner.name
    line = stage.lines[engine]
    cut = time.monotonic()
    line.cut = True
    await until(lambda: stopped)
    assert stopped[0] - cut < 1.0 + 0.1  # the last renewal was before the cut
    assert not runner.runs
    assert runner.name != name
    line.cut = False
    other = await stage.engine()
    task = await _elsewhere(other, sent.task.record.task_id)
    assert task.status.state is TaskState.completed
    assert begun == [1, 2]


async def test_a_network_that_drops_everything(keelbolt_postgres: PostgresServer) -> None:
    """No response on a real connection: the worker is stopped in time, and another process takes over."""
    begun = []
    stopped = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        if len(begun) == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                stopped.append(time.monotonic())
                raise
        await ctx.complete(str(ctx.attempt))

    with keelbolt_postgres.database() as url:
        async with Proxy("127.0.0.1", _port(url)) as proxy, Stage(url) as stage:
            engine = await stage.engine(worker, url=proxy.url(url), lease_seconds=1.5, heartbeat_seconds=0.5)
            sent = await engine.tasks.send(message())
            await until(lambda: begun)
            cut = time.monotonic()
            proxy.swallow()
            try:
                other = await stage.engine(worker)
                task = await _elsewhere(other, sent.task.record.task_id)
            finally:
                proxy.allow()
                proxy.cut()
            assert stopped
            assert stopped[0] - cut < 1.6
            assert task.artifacts[0].parts[0].text == "2"
            assert await one_end(other, sent.task.record.task_id) is TaskState.completed


def _port(url: str) -> int:
    from urllib.parse import urlsplit

    return urlsplit(url).port or 5432


async def test_a_short_outage_of_the_store(stage: Stage) -> None:
    """An outage of the store that is shorter than the lease has no effect."""
    begun = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(1)
        await asyncio.sleep(0.6)
        await ctx.complete()

    engine = await stage.engine(worker, lease_seconds=3.0, heartbeat_seconds=0.1)
    sent = await engine.tasks.send(message())
    await until(lambda: begun)
    stage.lines[engine].cut = True
    await asyncio.sleep(0.3)
    stage.lines[engine].cut = False
    assert (await answer(engine, sent)).status.state is TaskState.completed
    assert begun == [1]


async def test_an_outage_of_the_store_at_the_end(stage: Stage) -> None:
    """If the end can't be written, the task runs again when the store is back, and ends once."""
    begun = []
    gate = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        begun.append(1)
        if len(begun) == 1:
            await gate.wait()
        await ctx.complete()

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    await until(lambda: begun)
    stage.lines[engine].cut = True
    gate.set()
    runner = engine.runner
    assert runner is not None
    await until(lambda: not runner.runs)
    stage.lines[engine].cut = False
    task = await _elsewhere(engine, sent.task.record.task_id)
    assert task.status.state is TaskState.completed
    assert len(begun) == 2
    assert await one_end(engine, sent.task.record.task_id) is TaskState.completed


async def test_a_send_that_the_store_refuses(stage: Stage) -> None:
    """A failed send takes no slot and creates no task; sent again, it creates one."""
    engine = await stage.engine(echo, concurrency=1)
    once = message()
    stage.lines[engine].cut = True
    for _ in range(3):
        with pytest.raises(StorageUnreachable):
            await engine.tasks.send(once)
    stage.lines[engine].cut = False
    sent = await engine.tasks.send(once)
    assert not sent.repeated
    assert (await answer(engine, sent)).status.state is TaskState.completed


async def test_a_send_whose_commit_is_in_doubt(stage: Stage) -> None:
    """The commit claimed the task for this process, but its result was lost: the task is released, and runs."""
    engine = await stage.engine(echo)
    line = stage.lines[engine]

    async def commit(*given: Any, **named: Any) -> Any:
        del line.commit
        await line.kernel.commit(*given, **named)
        line.cut = True
        asyncio.get_running_loop().call_later(0.3, setattr, line, "cut", False)
        raise CommitInDoubt

    line.commit = commit  # type: ignore[attr-defined]
    once = message()
    envelope = Envelope(Principal("alice"), key="once")
    with pytest.raises(CommitInDoubt):
        await engine.tasks.send(once, envelope)
    await asyncio.sleep(0.4)
    sent = await engine.tasks.send(once, envelope)
    assert sent.repeated
    assert (await answer(engine, sent)).status.state is TaskState.completed


# ----------------------------------------------------------------------------------- workers without progress or stop


async def test_no_progress(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that writes nothing for too long is stopped, and its task fails; one that writes continues."""
    monkeypatch.setattr("keelbolt.tasks.inbox.CHECK_SECONDS", 0.05)

    async def worker(ctx: TaskContext) -> None:
        for _ in range(40):
            await asyncio.sleep(0.05 if ctx.user_text == "busy" else 60)
            await ctx.send_status("still here")
        await ctx.complete()

    engine = await stage.engine(worker, no_progress_seconds=1.5)
    idle, busy = await asyncio.gather(ask(engine, "idle"), ask(engine, "busy"))
    assert busy.status.state is TaskState.completed
    assert idle.status.state is TaskState.failed
    assert idle.status.message is not None
    assert "no progress" in idle.status.message.text


async def test_no_progress_and_no_stopping(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task fails even when its worker ignores the stop."""
    monkeypatch.setattr("keelbolt.tasks.inbox.CHECK_SECONDS", 0.05)
    monkeypatch.setattr(run_state, "STUBBORN_SECONDS", 0.15)
    release = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        try:
            await release.wait()
        except asyncio.CancelledError:
            await asyncio.wait_for(release.wait(), 5.0)

    engine = await memory.engine(worker, no_progress_seconds=0.1)
    with at_most(3.0):
        task = await ask(engine)
    release.set()
    assert task.status.state is TaskState.failed
    assert await one_end(engine, task.id) is TaskState.failed


async def test_an_interrupt_that_is_ignored(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ignores an interrupt is abandoned: the message gets its turn anyway."""
    monkeypatch.setattr(run_state, "STUBBORN_SECONDS", 0.1)
    release = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        if ctx.user_text == "second":
            await ctx.respond("did second")
            return
        try:
            await release.wait()
        except asyncio.CancelledError:
            await asyncio.wait_for(release.wait(), 5.0)

    engine = await stage.engine(worker, double_text="interrupt")
    first = await engine.tasks.send(message("first"))
    second = await engine.tasks.send(message("second", task_id=first.task.record.task_id))
    task = await answer(engine, second)
    release.set()
    assert task.status.state is TaskState.completed
    assert [entry.text for entry in task.history] == ["first", "second", "did second"]
    assert await one_end(engine, task.id) is TaskState.completed


async def test_the_turn_after_an_interrupt_may_last(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer of the interrupted turn does not affect the next one."""
    monkeypatch.setattr(run_state, "STUBBORN_SECONDS", 0.1)

    async def worker(ctx: TaskContext) -> None:
        await asyncio.sleep(60 if ctx.user_text == "first" else 0.4)
        await ctx.complete(ctx.user_text)

    engine = await memory.engine(worker, double_text="interrupt")
    first = await engine.tasks.send(message("first"))
    task = await answer(engine, await engine.tasks.send(message("second", task_id=first.task.record.task_id)))
    assert task.status.state is TaskState.completed
    assert task.artifacts[0].parts[0].text == "second"


# ------------------------------------------------------------------------------------------------------------- drain


async def test_drain(stage: Stage) -> None:
    """A process that is stopped releases its tasks at once; no attempt is counted."""
    begun = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        if len(begun) == 1:
            await asyncio.sleep(60)
        await ctx.complete()

    second = await stage.engine(worker)
    kernel = await stage.kernel()
    async with TaskEngine(kernel, worker, settings=TaskSettings(drain_seconds=0.0)) as first:
        sent = await first.tasks.send(message())
        await until(lambda: begun)
    with at_most(1.0):
        task = await _elsewhere(second, sent.task.record.task_id)
    assert task.status.state is TaskState.completed
    assert begun == [1, 1]
    assert await one_end(second, sent.task.record.task_id) is TaskState.completed


async def test_drain_lets_tasks_finish(stage: Stage) -> None:
    """A task that ends within the drain ends in this process; no new task is started."""
    begun = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.user_text)
        await asyncio.sleep(0.2)
        await ctx.complete()

    kernel = await stage.kernel()
    async with TaskEngine(kernel, worker, settings=TaskSettings(drain_seconds=5.0, concurrency=1)) as engine:
        sent = await engine.tasks.send(message("first"))
        late = await engine.tasks.send(message("second"))
        await until(lambda: begun)
    other = await stage.engine()
    assert await state_of(other, sent.task.record.task_id) is TaskState.completed
    assert await state_of(other, late.task.record.task_id) is TaskState.submitted
    assert begun == ["first"]


async def test_drain_of_a_worker_that_ignores_the_stop(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ignores the stop delays neither the end of its process nor the takeover of its task."""
    release = asyncio.Event()
    begun = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        if len(begun) == 1:
            try:
                await release.wait()
            except asyncio.CancelledError:
                await asyncio.wait_for(release.wait(), 10.0)
        await ctx.complete()

    second = await memory.engine(worker)
    with at_most(4.0):
        async with TaskEngine(await memory.kernel(), worker, settings=TaskSettings(drain_seconds=0.0)) as first:
            sent = await first.tasks.send(message())
            await until(lambda: begun)
    task = await _elsewhere(second, sent.task.record.task_id)
    release.set()
    assert task.status.state is TaskState.completed
    await asyncio.sleep(0.05)
    assert await one_end(second, sent.task.record.task_id) is TaskState.completed


async def test_a_process_ends_while_the_store_is_unreachable(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releasing the lease is optional: an unreachable store does not delay the end of the process."""
    monkeypatch.setattr(lease_module, "RETIRE_SECONDS", 0.1)
    line = KernelLink(await memory.kernel())
    with at_most(2.0):
        async with TaskEngine(cast("Kernel", line), echo):
            line.retire = lambda _: asyncio.sleep(60)  # type: ignore[attr-defined]


# ----------------------------------------------------------------------------------------------------------- fairness


async def test_tenants_take_turns(stage: Stage) -> None:
    """A tenant with a long queue does not delay another tenant until that queue is empty."""
    order = []

    async def worker(ctx: TaskContext) -> None:
        order.append(ctx.principal.tenant)
        await ctx.complete()

    front = await stage.engine()
    for tenant, count in (("large", 20), ("small", 2)):
        for number in range(count):
            who = Principal(owner="o", tenant=tenant)
            await front.tasks.send(message(message_id=f"{tenant}-{number}"), Envelope(who))
    await stage.engine(worker, concurrency=1)
    await until(lambda: len(order) == 22)
    assert order.index("small") <= 3
    assert len(order) - 1 - order[::-1].index("small") <= 7


async def test_concurrency(stage: Stage) -> None:
    """No more tasks than allowed run concurrently, and all are completed."""
    running = most = 0

    async def worker(ctx: TaskContext) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        await ctx.complete()

    engine = await stage.engine(worker, concurrency=5)
    tasks = await asyncio.gather(*(ask(engine, str(number)) for number in range(25)))
    assert {task.status.state for task in tasks} == {TaskState.completed}
    assert most == 5
    runner = engine.runner
    assert runner is not None
    await until(lambda: runner.free == 5)


# -------------------------------------------------------------------------------------------------------------- hooks


async def test_a_hook_that_does_not_return_does_not_prevent_the_stop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine releases its tasks and its lease, and cancels the hook."""
    monkeypatch.setattr(runner_module, "RETIRE_SECONDS", 0.1)
    ended = asyncio.Event()

    async def hang(_task_id: str, _state: TaskState) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def wait(ctx: TaskContext) -> None:
        await asyncio.Event().wait()

    kernel = await stage.kernel()
    hooks = LifecycleHooks(on_working=hang)
    async with asyncio.timeout(30):
        async with TaskEngine(kernel, wait, settings=TaskSettings(drain_seconds=0.0), hooks=hooks) as engine:
            sent = await engine.tasks.send(message())
            await until(lambda: bool(hooks._telling))
    assert ended.is_set()
    item = await sent.task.scope.work(QUEUE, sent.task.record.task_id)
    assert item is not None
    assert item.holder is None


async def test_hooks_are_called(stage: Stage) -> None:
    """Hooks run in the task's process, in order, after each commit; the last ones run before the process ends."""
    calls: list[tuple[str, str]] = []

    def hook(name: str) -> object:
        async def tell(task_id: str, state: TaskState) -> None:
            await asyncio.sleep(0.01)
            calls.append((name, state.name))

        return tell

    hooks = LifecycleHooks(hook("change"), hook("working"), hook("end"), hook("terminal"))  # type: ignore[arg-type]
    kernel = await stage.kernel()
    async with TaskEngine(kernel, echo, settings=TaskSettings(drain_seconds=1.0), hooks=hooks) as engine:
        await ask(engine)
    assert calls == [
        ("change", "working"),
        ("working", "working"),
        ("change", "completed"),
        ("end", "completed"),
        ("terminal", "completed"),
    ]


async def test_every_attempt_is_recorded(stage: Stage) -> None:
    """The log names the process of each attempt."""
    engine = await stage.engine(echo)
    task = await ask(engine)
    (attempt,) = await bodies(engine, task.id, "attempt")
    assert engine.runner is not None
    assert attempt["worker"] == engine.runner.name
    assert (attempt["turn"], attempt["attempt"]) == (1, 1)


async def test_a_process_without_a_storage_of_its_own(url: str) -> None:
    """The example of the package runs unchanged."""
    async with open_storage(url) as kernel, TaskEngine(kernel, echo) as engine:
        sent = await engine.tasks.send(message("Hello"))
        task = await engine.tasks.settled(sent)
        assert task.view.state is TaskState.completed


@pytest.mark.parametrize("why", ["lost", "drain"])
async def test_a_stop_before_the_first_step(memory: Stage, why: Stop) -> None:
    """A run that is stopped before its first step frees its slot and blocks nothing."""
    engine = await memory.engine(echo, concurrency=1)
    sent = await engine.tasks.send(message())
    assert sent.run is not None
    sent.run.stop(why)
    runner = engine.runner
    assert runner is not None
    assert not runner.runs
    assert await asyncio.wait_for(sent.run.settled(), 1.0) is None


async def test_a_stop_while_the_turn_ends(memory: Stage) -> None:
    """If a turn is interrupted while its end is being written, the end is refused, and the message gets its turn."""
    begun = []
    go, gate, held = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.user_text)
        if ctx.user_text == "first":
            await go.wait()
        await ctx.respond(f"did {ctx.user_text}")

    engine = await memory.engine(worker, double_text="interrupt")
    other = await memory.engine(double_text="interrupt")
    sent = await engine.tasks.send(message("first"))
    kernel = memory.lines[engine].kernel

    async def slowly(*commit: Any) -> Any:
        held.set()
        await gate.wait()
        return await kernel.commit(*commit)

    memory.lines[engine].commit = lambda *commit: asyncio.shield(asyncio.ensure_future(slowly(*commit)))  # type: ignore[attr-defined]
    go.set()
    await asyncio.wait_for(held.wait(), 5.0)
    second = await other.tasks.send(message("second", task_id=sent.task.record.task_id))
    assert sent.run is not None
    sent.run.stop("interrupt")
    await asyncio.sleep(0.01)
    gate.set()
    with at_most(5.0):
        task = await answer(other, second)
    assert task.status.state is TaskState.completed
    assert begun == ["first", "second"]
    assert [entry.text for entry in task.history] == ["first", "did first", "second", "did second"]
    assert await one_end(engine, task.id) is TaskState.completed
