"""`keelbolt turns` lists and settles gates, and the waiting task continues."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from keelbolt.cli.main import main
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskEngine
from keelbolt.turns import DispatchContext, durable_storage, turn_worker
from tests.integration.tasks.stage import message


async def execute(ctx: DispatchContext, _helpers: Any) -> None:
    answer = await ctx.wait_for(reason="How much?", schema={"type": "integer"})
    ctx.nack(f"it was {answer}")


def engine(url: str, *, works: bool) -> TaskEngine:
    storage = durable_storage(url)
    worker = turn_worker(storage.runner(executor_callback=execute), storage, system_prompt="Ask.")
    return TaskEngine.on(url, worker if works else None)


def test_a_gate_is_settled_from_the_command_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"

    def run_turns(*arguments: str) -> str:
        ran = CliRunner().invoke(main, ["turns", *arguments, "--storage", url])
        return f"{ran.exit_code} {ran.output}"

    async def ask() -> str:
        async with engine(url, works=True) as asking:
            return (await asking.tasks.settled(await asking.tasks.send(message("go")), seconds=30)).task_id

    async def finish() -> str:
        async with engine(url, works=True) as going_on, asyncio.timeout(30):
            async for _ in going_on.tasks.follow(task_id):
                pass
            task = await going_on.store.task(await going_on.tasks.load(task_id))
            assert task.status.state == TaskState.failed
            assert task.status.message is not None
            return task.status.message.text

    task_id = asyncio.run(ask())
    listed = run_turns("gates")
    assert listed.startswith("0 ")
    assert "How much?" in listed
    assert task_id in listed
    (gate,) = json.loads(run_turns("gates", "--json").partition(" ")[2])["gates"]
    assert "must be integer" in run_turns("settle", gate["token"], "resolve", "--value", '"much"')
    assert "not JSON" in run_turns("settle", gate["token"], "resolve", "--value", "{")
    assert "there is no such gate" in run_turns("settle", "none", "abort")
    assert (
        run_turns("settle", gate["token"], "resolve", "--value", "7") == "0 the gate is resolved; its task continues\n"
    )
    assert run_turns("settle", gate["token"], "reject").startswith("0 the gate is resolved")
    assert asyncio.run(finish()) == "it was 7"
    assert "How much?" not in run_turns("gates")
    assert "resolved" in run_turns("gates", "--state", "settled")
