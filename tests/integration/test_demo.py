"""`make run` starts every face with example data and replaces a killed process, also when it is started again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2

from keelbolt.operations.table import PREFIX
from tests.ui.stage import ROOT, made_run


class Demo:
    """The demo, as a client sees it."""

    def __init__(self, page: str) -> None:
        self.client = httpx2.AsyncClient(base_url=page.removesuffix("/explorer"), timeout=20)

    async def get(self, path: str) -> Any:
        for _ in range(50):
            try:
                return (await self.client.get(path)).raise_for_status().json()
            except httpx2.TransportError:  # the connected process was killed
                await asyncio.sleep(0.1)
        raise AssertionError(path)

    async def send(self, text: str) -> str:
        message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
        body = {"message": message, "configuration": {"returnImmediately": True}}
        sent: str = (await self.client.post("/message:send", json=body)).json()["task"]["id"]
        return sent

    async def until(self, task_id: str, words: str) -> Any:
        """Return the task once its status contains this."""
        async with asyncio.timeout(30):
            while True:
                task = await self.get(f"{PREFIX}/tasks/{task_id}")
                if words in str(task["task"]["status"]):
                    return task
                await asyncio.sleep(0.05)


async def test_a_killed_process_is_replaced_and_the_history_is_written_once(tmp_path: Path) -> None:
    async with made_run(tmp_path) as page:
        demo = Demo(page)
        skills = {skill["id"] for skill in (await demo.get("/.well-known/agent-card.json"))["skills"]}
        assert {"echo", "write", "deploy", "work", "plan", "text.count", "shop.refund"} <= skills
        first = (await demo.get(f"{PREFIX}/tasks"))["tasks"]
        assert len(first) == 14
        assert {task["skill"] for task in first} <= skills
        assert len((await demo.get(f"{PREFIX}/gates"))["gates"]) == 1
        [session] = (await demo.get(f"{PREFIX}/state/sessions"))["sessions"]
        assert session["id"] == "harbour-tour"

        task_id = await demo.send("work through 4 parcels")
        await demo.until(task_id, "1 of 4")
        kill = {"kind": "inject", "reason": "to see it", "payload": {"kill": True}}
        steered = await demo.client.post(f"{PREFIX}/tasks/{task_id}/steer", json=kill)
        assert steered.status_code == 200, steered.text
        task = await demo.until(task_id, "COMPLETED")
        assert task["runs"] == 2
        assert task["task"]["artifacts"][0]["parts"][0]["text"] == "4 parcels, each packed once, by 2 processes."
        await demo.client.aclose()

    async with made_run(tmp_path) as page:
        demo = Demo(page)
        assert len((await demo.get(f"{PREFIX}/tasks"))["tasks"]) == 15
        await demo.client.aclose()


async def test_the_demo_logs_no_warning(tmp_path: Path) -> None:
    async with made_run(tmp_path, log=tmp_path / "log") as page:
        demo = Demo(page)
        async with asyncio.timeout(60):
            while not (await demo.get(f"{PREFIX}/gates"))["gates"]:  # noqa: ASYNC110 - of the turn agent, after two iterations
                await asyncio.sleep(0.2)
        await demo.client.aclose()
        assert (tmp_path / "log").read_text() == ""


def test_an_error_is_one_line() -> None:
    command = [sys.executable, "-m", "examples.demo", "--storage", "nowhere:///x"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: ")
    assert len(ran.stderr.splitlines()) == 1
