"""kill -9 at every commit around a question, the turn after it, a cancel and the cleanup after it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import pytest

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.kernel import Kernel, open_storage
from keelbolt.tasks import Message, Part, Role, TaskEngine, TaskSettings, TaskState
from keelbolt.tasks.families import QUEUE
from tests.faults.conftest import Figures
from tests.faults.processes import Child, Children, Ended
from tests.faults.task_notes import read_notes
from tests.faults.task_verify import verify_tasks
from tests.faults.task_worker import message

MEMBERS = 2
SECONDS = 240.0
PAY_COMMITS = 6  # begun, asked, begun again, step begun, step done, completed
BOOK_COMMITS = 7  # begun, step begun, step done, cancel noted, cleanup step begun, cleanup step done, ended


class Supervisor:
    """Keeps processes of `killed_worker` running until the block ends."""

    def __init__(self, children: Children, url: str, folder: Path) -> None:
        self.kills = 0
        self._children = children
        self._url = url
        self._folder = folder
        self._members: list[Child] = []
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._supervise())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._stopping = True
        assert self._task is not None
        await self._task
        for child in self._members:
            self.kills += not child.alive  # after the last poll
            child.close()

    async def _supervise(self) -> None:
        while not self._stopping:
            for child in [child for child in self._members if not child.alive]:
                assert child.wait() == -signal.SIGKILL, "a process ended by itself"
                child.close()
                self._members.remove(child)
                self.kills += 1
            while len(self._members) < MEMBERS:
                child = self._children.start("killed_worker", self._url, self._folder)
                self._members.append(child)
                with contextlib.suppress(Ended):
                    await asyncio.to_thread(child.line)
            await asyncio.sleep(0.05)


def plans(commits: int, *, full: bool, url: str, first: int = 1) -> list[str]:
    """The kills around these commits; without --full, engines other than SQLite only get those after each commit."""
    moments = ("before", "during", "after") if full or url.startswith("sqlite") else ("after",)
    return [f"{when}:{number}" for number in range(first, commits + 1) for when in moments]


def keep_plans(folder: Path, given: dict[str, str]) -> None:
    (folder / "ledger").touch()
    (folder / "plans.json").write_text(json.dumps(given))


def ledger(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [note for note in read_notes([folder / "ledger"]) if note["kind"] == kind]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 - other processes bring it about
        await asyncio.sleep(0.05)


async def in_state(engine: TaskEngine, task_id: str, *wanted: TaskState) -> None:
    async def there() -> bool:
        return (await engine.tasks.load(task_id)).view.state in wanted

    await until(there)


async def in_ledger(folder: Path, kind: str, task_id: str) -> None:
    async def there() -> bool:
        return any(note["task"] == task_id for note in ledger(folder, kind))

    await until(there)


async def no_work(kernel: Kernel, task_id: str) -> None:
    async def gone() -> bool:
        return await kernel.work(ANONYMOUS.partition, QUEUE, task_id) is None

    await until(gone)


async def approve(engine: TaskEngine, task_id: str, answer: str) -> None:
    """Answer the question of this task when it asks; return when it is over."""
    await in_state(engine, task_id, TaskState.input_required, TaskState.completed)
    if (await engine.tasks.load(task_id)).view.state.terminal:
        return  # it did not ask; the ledger shows its payments
    words = Message(message_id=f"answer-{task_id}", role=Role.user, parts=[Part(text=answer)], task_id=task_id)
    await engine.tasks.send(words)
    await in_state(engine, task_id, TaskState.completed)


@pytest.mark.timeout(600)
async def test_no_payment_without_an_approval_whenever_the_process_is_killed(
    tmp_path: Path, children: Children, figures: Figures, full: bool, task_url: str
) -> None:
    """`request_input(…, state=…)`: the worker pays once, after a yes, and never treats the request as the answer."""
    async with open_storage(task_url) as kernel, TaskEngine(kernel) as engine:
        answers: dict[str, str] = {}
        chosen: dict[str, str] = {}
        for plan in [*plans(PAY_COMMITS, full=full, url=task_url), "effect:1", "effect:2"]:
            sent = await engine.tasks.send(message(plan, "pay 40"))
            chosen[sent.task.task_id], answers[sent.task.task_id] = plan, "yes"
        for plan in plans(3, full=full, url=task_url, first=2):
            sent = await engine.tasks.send(message(f"no {plan}", "pay 50"))
            chosen[sent.task.task_id], answers[sent.task.task_id] = plan, "no"
        keep_plans(tmp_path, chosen)
        async with asyncio.timeout(SECONDS), Supervisor(children, task_url, tmp_path) as supervisor:
            await asyncio.gather(*(approve(engine, task_id, answer) for task_id, answer in answers.items()))
        verdict = await verify_tasks(kernel, answers, [])
    figures(f"{kernel.engine}: kill -9 around an approval", kills=supervisor.kills, **verdict.numbers())
    verdict.assert_clean()
    assert {path.name for path in tmp_path.glob("reached-*")} == {f"reached-{task}" for task in chosen}
    assert supervisor.kills > len(chosen) // 2, "plans of tasks in one process may share a kill"
    paid = ledger(tmp_path, "paid")
    assert {note["approval"] for note in paid} == {"yes"}
    assert Counter(note["task"] for note in paid) == {task: 1 for task, answer in answers.items() if answer == "yes"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("patience", [0.5, 60.0])
async def test_no_file_is_left_behind_whenever_the_process_of_a_canceled_task_is_killed(
    tmp_path: Path, children: Children, figures: Figures, full: bool, task_url: str, patience: float
) -> None:
    """The worker cleans up once more: before the end of the task, or after it if the client stops waiting."""
    settings = TaskSettings(cancel_seconds=patience)
    async with open_storage(task_url) as kernel, TaskEngine(kernel, settings=settings) as engine:
        chosen: dict[str, str] = {}
        for plan in plans(BOOK_COMMITS, full=full, url=task_url, first=3):
            sent = await engine.tasks.send(message(plan, "book"))
            chosen[sent.task.task_id] = plan
        keep_plans(tmp_path, chosen)

        async def cancel(task_id: str) -> None:
            await in_ledger(tmp_path, "waiting", task_id)
            await engine.tasks.cancel(task_id, seconds=patience + 1)
            await in_state(engine, task_id, TaskState.canceled)
            await no_work(kernel, task_id)

        async with asyncio.timeout(SECONDS), Supervisor(children, task_url, tmp_path) as supervisor:
            await asyncio.gather(*map(cancel, chosen))
        verdict = await verify_tasks(kernel, chosen, [])
    figures(f"{kernel.engine}: kill -9 around a cancel", kills=supervisor.kills, **verdict.numbers())
    verdict.assert_clean()
    assert not list(tmp_path.glob("*.part"))
    once = dict.fromkeys(chosen, 1)
    assert Counter(note["task"] for note in ledger(tmp_path, "booked")) == once
    assert Counter(note["task"] for note in ledger(tmp_path, "undone")) == once
    assert supervisor.kills >= len(chosen) - 6, "most plans killed a process"


@pytest.mark.timeout(300)
async def test_a_cancel_while_no_process_runs(tmp_path: Path, children: Children, task_url: str) -> None:
    """The caller gets a response; the next process that starts cleans up."""
    settings = TaskSettings(cancel_seconds=0.5)
    async with open_storage(task_url) as kernel, TaskEngine(kernel, settings=settings) as engine:
        sent = await engine.tasks.send(message("1", "book"))
        task_id = sent.task.task_id
        keep_plans(tmp_path, {})
        child = children.start("killed_worker", task_url, tmp_path)
        async with asyncio.timeout(60):
            await in_ledger(tmp_path, "waiting", task_id)
        child.kill()
        assert list(tmp_path.glob("*.part"))
        assert (await engine.tasks.cancel(task_id)).view.state is TaskState.canceled
        assert list(tmp_path.glob("*.part"))
        async with asyncio.timeout(60), Supervisor(children, task_url, tmp_path):
            await no_work(kernel, task_id)
        (await verify_tasks(kernel, [task_id], [])).assert_clean()
    assert not list(tmp_path.glob("*.part"))
    assert [len(ledger(tmp_path, kind)) for kind in ("booked", "undone", "cleaning")] == [1, 1, 1]
