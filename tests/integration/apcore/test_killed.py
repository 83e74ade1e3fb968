"""`keelbolt serve --extensions-dir …` killed with -9 in the middle of the sequences of section 7, and started again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keelbolt.kernel import new_id
from tests.integration.apcore.serving import extensions
from tests.integration.apcore.test_section_7 import data, rpc, send_params, text
from tests.integration.server.test_serve_command import Serving, serving
from tests.integration.webhooks.receiver import receiving

SCHEMAS = """
import asyncio
import time
from pathlib import Path

from apcore import ModuleAnnotations
from pydantic import BaseModel

class Input(BaseModel):
    text: str

class Output(BaseModel):
    done: str

def note(line):
    with open("calls.txt", "a") as calls:
        calls.write(line + "\\n")
    return Path("calls.txt").read_text().splitlines().count(line)
"""

DEPLOY = f"""{SCHEMAS}
class Deploy:
    input_schema = Input
    output_schema = Output
    description = "Deploys a service"
    annotations = ModuleAnnotations(requires_approval=True, destructive=True)

    def execute(self, inputs, context):
        note("deploy " + inputs["text"])
        return {{"done": inputs["text"]}}
"""

REPORT = f"""{SCHEMAS}
class Report:
    input_schema = Input
    output_schema = Output
    description = "Writes a report; the first one takes for ever"

    async def execute(self, inputs, context):
        if note("report " + inputs["text"]) == 1:
            await asyncio.sleep(600)
        return {{"done": inputs["text"]}}
"""

IN_THREAD = (
    REPORT.replace("async def", "def").replace("await asyncio", "time").replace("class Report", "class Blocking")
)

DESTROY = REPORT.replace("class Report:", "class Destroy:").replace(
    'description = "Writes', 'annotations = ModuleAnnotations(destructive=True)\n    description = "Writes'
)


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], Any]:
    """Start a process with these modules and this storage."""
    modules = {
        "deploy__service": DEPLOY,
        "report__generate": REPORT,
        "report__block": IN_THREAD,
        "report__drop": DESTROY,
    }
    extensions(tmp_path / "modules", **modules)
    options = ("--extensions-dir", "modules", "--approval", "caller", "--push-notifications")
    return lambda: serving(tmp_path, *options, KEELBOLT_LEASE_SECONDS="1.5", KEELBOLT_WEBHOOK_LOOPBACK="true")


def kill(process: Serving) -> None:
    assert process.stop(signal.SIGKILL) == -signal.SIGKILL


def calls(folder: Path) -> list[str]:
    file = folder / "calls.txt"
    return file.read_text().splitlines() if file.exists() else []


def talking(process: Serving) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=process.url, timeout=30)


async def until(happened: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not happened():  # noqa: ASYNC110 - another process is watched
            await asyncio.sleep(0.02)


async def ended(client: httpx2.AsyncClient, task_id: str, *states: str) -> Any:
    """Return the task when it is in one of these states."""
    async with asyncio.timeout(30):
        while (task := await rpc(client, "tasks/get", {"id": task_id}))["status"]["state"] not in states:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.05)
    return task


async def test_section_7_3_an_approval_is_given_to_the_next_process_after_kill_9(tmp_path: Path, start: Any) -> None:
    with start() as first:
        async with talking(first) as client:
            asked = await rpc(client, "message/send", send_params(text("the website"), skill="deploy.service"))
            assert asked["status"]["state"] == "input-required"
        kill(first)
    assert calls(tmp_path) == []
    with start() as second:
        async with talking(second) as client:
            answer = send_params(text("approved"), context=asked["contextId"])
            answer["message"]["messageId"] = new_id()
            client.headers["Idempotency-Key"] = new_id()
            done = await rpc(client, "message/send", answer)
            assert (done["id"], done["status"]["state"]) == (asked["id"], "completed")
            again = await rpc(client, "message/send", answer)  # a client that did not get the response
            assert (again["id"], again["artifacts"]) == (done["id"], done["artifacts"])
    assert calls(tmp_path) == ["deploy the website"]


@pytest.mark.parametrize("skill", ["report.generate", "report.block"])
async def test_section_7_5_a_running_module_is_run_again_after_kill_9(tmp_path: Path, start: Any, skill: str) -> None:
    """This holds in the loop and in a thread: the webhook gets the final state from the next process."""
    async with receiving() as receiver:
        with start() as first:
            async with talking(first) as client:
                params = send_params(data({"text": "x"}), skill=skill) | {"configuration": {"blocking": False}}
                task = await rpc(client, "message/send", params)
                await rpc(
                    client, "tasks/pushNotificationConfig/set", {"taskId": task["id"], "url": f"{receiver.url}/a"}
                )
                await until(lambda: calls(tmp_path) == ["report x"])
            kill(first)
        with start() as second:
            async with talking(second) as client:
                done = await ended(client, task["id"], "completed", "failed")
                assert done["status"]["state"] == "completed"
                assert done["artifacts"][0]["parts"][0]["data"] == {"done": "x"}
                assert len(done["artifacts"][0]["parts"]) == 1
                await until(lambda: any(b"completed" in one.body.lower() for one in receiver.arrivals))
    assert calls(tmp_path) == ["report x"] * 2


async def test_the_user_is_asked_about_a_destructive_module_after_kill_9(tmp_path: Path, start: Any) -> None:
    with start() as first:
        async with talking(first) as client:
            params = send_params(data({"text": "x"}), skill="report.drop") | {"configuration": {"blocking": False}}
            task = await rpc(client, "message/send", params)
            await until(lambda: calls(tmp_path) == ["report x"])
        kill(first)
    with start() as second:
        async with talking(second) as client:
            asked = await ended(client, task["id"], "input-required", "completed", "failed")
            assert asked["status"]["state"] == "input-required"
            assert "inDoubt" in str(asked["status"])
            assert calls(tmp_path) == ["report x"]
            done = await rpc(client, "message/send", send_params(text("retry"), context=task["contextId"]))
            assert (done["id"], done["status"]["state"]) == (task["id"], "completed")
    assert calls(tmp_path) == ["report x"] * 2
