"""Processes that end, and modules that block the event loop, while a module runs."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from apcore import ModuleAnnotations

from keelbolt.tasks.settings import TaskSettings
from tests.integration.apcore.calling import message, output, state, status_data, status_text, task_of
from tests.integration.apcore.modules import Anything, Count, agent_of, executor_of, registry_of
from tests.integration.server.asgi import call

QUICK = TaskSettings.of(drain_seconds=0.1)


class Hangs:
    """Runs until its process ends; in the next process it returns at once."""

    input_schema = Anything
    output_schema = Anything
    description = "Works"
    annotations = ModuleAnnotations()

    def __init__(self, *, hangs: bool) -> None:
        self.hangs = hangs
        self.began = asyncio.Event()
        self.calls = 0
        self.saw_cancel = False

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        self.calls += 1
        self.began.set()
        try:
            while self.hangs:
                await asyncio.sleep(0.005)
                self.saw_cancel = self.saw_cancel or context.cancel_token.is_cancelled
        finally:
            self.saw_cancel = self.saw_cancel or context.cancel_token.is_cancelled
        return {"done": True}


class Destroys(Hangs):
    annotations = ModuleAnnotations(destructive=True)


class DestroysAgain(Hangs):
    annotations = ModuleAnnotations(destructive=True, idempotent=True)


async def interrupted(kind: Any, storage: str) -> tuple[Any, str]:
    """Return a task whose process ended while its module ran."""
    first = kind(hangs=True)
    async with agent_of(executor_of(registry_of(work=first)), storage=storage, task_settings=QUICK) as server:
        params = {"message": message({}, messageId="m"), "configuration": {"returnImmediately": True}}
        task = (await call(server.app, "SendMessage", params, headers=[("idempotency-key", "m")])).json["result"][
            "task"
        ]
        await first.began.wait()
    return first, task["id"]


@pytest.mark.parametrize("kind", [Hangs, DestroysAgain])
async def test_a_module_is_called_again_by_the_next_process(kind: Any, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/agent.db"
    first, task_id = await interrupted(kind, storage)
    second = kind(hangs=False)
    async with agent_of(executor_of(registry_of(work=second)), storage=storage) as server:
        task = await task_of(server.app, {}, messageId="m")
        assert (task["id"], output(task)) == (task_id, {"done": True})
    assert (first.calls, second.calls) == (1, 1)
    await asyncio.sleep(0.02)
    assert first.saw_cancel  # the module in the old process was cancelled


@pytest.mark.parametrize(
    ("answer", "ends", "calls"),
    [
        ("retry", "completed", 1),
        ({"answer": "done", "result": {"found": "in the books"}}, "completed", 0),
        ("failed", "failed", 0),
    ],
)
async def test_the_user_is_asked_about_an_interrupted_destructive_module(
    answer: Any, ends: str, calls: int, tmp_path: Path
) -> None:
    """A destructive module started and did not report its end, so its effect is unknown."""
    storage = f"sqlite:///{tmp_path}/agent.db"
    _, task_id = await interrupted(Destroys, storage)
    second = Destroys(hangs=False)
    async with agent_of(executor_of(registry_of(work=second)), storage=storage) as server:
        asked = await task_of(server.app, {}, messageId="m")
        assert (asked["id"], state(asked), second.calls) == (task_id, "input_required", 0)
        assert status_data(asked)["inDoubt"] is True
        over = await task_of(server.app, answer, taskId=task_id)
        assert (state(over), second.calls) == (ends, calls)
        if isinstance(answer, dict):
            assert output(over) == {"found": "in the books"}
        elif ends == "failed":
            assert "in doubt" in status_text(over)


async def test_a_restarted_stream_drops_the_chunks_of_the_old_process(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/agent.db"
    streamed_some = asyncio.Event()

    class Stuck(Count):
        async def stream(self, inputs: dict[str, Any], context: Any) -> Any:
            yield {"number": 1}
            streamed_some.set()
            await asyncio.sleep(60)

    async with agent_of(executor_of(registry_of(count=Stuck())), storage=storage, task_settings=QUICK) as server:
        params = {"message": message({"to": 3}, messageId="m")}
        headers = [("idempotency-key", "m")]
        sending = asyncio.create_task(call(server.app, "SendStreamingMessage", params, headers=headers))
        await streamed_some.wait()
    await sending
    async with agent_of(executor_of(registry_of(count=Count())), storage=storage) as server:
        task = await task_of(server.app, {"to": 3}, messageId="m")
        assert [part["data"]["number"] for part in task["artifacts"][0]["parts"]] == [1, 2, 3]


async def test_a_module_that_blocks_the_loop_loses_its_lease_but_no_task(tmp_path: Path) -> None:
    """The lease ends while the loop is blocked; then the task is claimed again, and other tasks continue."""

    class Blocks(Hangs):
        async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
            self.calls += 1
            if self.calls == 1:
                time.sleep(1.2)
                await asyncio.sleep(0.2)
            return {"calls": self.calls}

    settings = TaskSettings.of(lease_seconds=0.6, heartbeat_seconds=0.2)
    blocks = Blocks(hangs=False)
    executor = executor_of(registry_of(blocks=blocks, count=Count()))
    async with agent_of(executor, storage=f"sqlite:///{tmp_path}/agent.db", task_settings=settings) as server:
        task, other = await asyncio.gather(
            task_of(server.app, {}, skill="blocks"), task_of(server.app, {"to": 2}, skill="count")
        )
        assert state(task) == state(other) == "completed"
        assert len(task["artifacts"]) == 1


async def test_a_failed_destructive_module_is_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies after the module failed and before the task failed."""

    class Fails(Destroys):
        async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
            self.calls += 1
            raise RuntimeError("half of it is done, see /srv/log/x.txt")

    storage = f"sqlite:///{tmp_path}/agent.db"
    first, second, failed = Fails(hangs=True), Fails(hangs=False), asyncio.Event()

    async def dies(*_: Any) -> None:
        failed.set()
        await asyncio.sleep(3600)

    async with agent_of(executor_of(registry_of(work=first)), storage=storage, task_settings=QUICK) as server:
        with monkeypatch.context() as patch:
            patch.setattr("keelbolt.apcore.worker.ApcoreWorker._fail", dies)
            params = {"message": message({}), "configuration": {"returnImmediately": True}}
            task = (await call(server.app, "SendMessage", params, headers=[("idempotency-key", "m")])).json["result"][
                "task"
            ]
            await asyncio.wait_for(failed.wait(), 10)
    async with agent_of(executor_of(registry_of(work=second)), storage=storage, task_settings=QUICK) as server:
        async with asyncio.timeout(20):
            while state(task) != "failed":
                await asyncio.sleep(0.01)
                task = (await call(server.app, "GetTask", {"id": task["id"]})).json["result"]
        data = {"type": "ModuleExecuteError", "code": "MODULE_EXECUTE_ERROR"}
        assert status_data(task) == {"code": -32603, "message": "Internal error", "data": data}
    assert (first.calls, second.calls) == (1, 0)
