"""SIGTERM to `keelbolt serve` under load, and a new one on the same file: no acknowledged task is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.faults.conftest import Figures
from tests.faults.processes import ROOT
from tests.integration.server.reading import events, rpc, sending

CLIENTS = 8
CHUNKS = 20
DRAIN_SECONDS = 0.3  # less than the duration of a task: most are released
WORDS = "".join(f"{number} " for number in range(CHUNKS))


@dataclass
class Followed:
    """A task as one client saw it."""

    task_id: str
    seqs: list[int] = field(default_factory=list)
    text: dict[str, str] = field(default_factory=dict)
    breaks: int = 0
    over: bool = False

    def take(self, seq: int | None, event: dict[str, Any]) -> None:
        if seq is not None:
            self.seqs.append(seq)
        if "artifactUpdate" in event:
            artifact = event["artifactUpdate"]["artifact"]
            before = self.text.get(artifact["artifactId"], "") if event["artifactUpdate"].get("append") else ""
            text = "".join(part["text"] for part in artifact["parts"])
            self.text[artifact["artifactId"]] = before + text
        status = event.get("statusUpdate", event.get("task", {})).get("status", {})
        self.over = status.get("state") == "TASK_STATE_COMPLETED"


def serve(port: int, url: str, processes: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "keelbolt", "serve", "tests.integration.server.actor:act", "--storage", url]
    command += ["--port", str(port), "--processes", str(processes), "--shutdown-timeout", str(DRAIN_SECONDS)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env={**os.environ})


async def ready(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                if (await client.get("/ready")).status_code == 200:
                    return
            await asyncio.sleep(0.05)


async def read(client: httpx2.AsyncClient, body: dict[str, Any], followed: Followed, after: int | None) -> None:
    headers = {"Last-Event-ID": str(after)} if after is not None else {}
    with contextlib.suppress(httpx2.HTTPError):
        async with client.stream("POST", "/", json=body, headers=headers) as response:
            if response.status_code != 200 or "event-stream" not in response.headers["content-type"]:
                return
            async for seq, event in events(response):
                if not followed.task_id:
                    followed.task_id = event["task"]["id"]
                followed.take(seq, event)


async def load(client: httpx2.AsyncClient, name: str, seen: list[Followed], stop: asyncio.Event) -> None:
    """Send a message, follow its task to the end over all restarts, and start again."""
    number = 0
    while not stop.is_set():
        number += 1
        followed = Followed("")
        text = f"count {CHUNKS} 0.05"
        await read(client, rpc("SendStreamingMessage", sending(text, f"{name}-{number}")), followed, None)
        if not followed.task_id:  # it was not acknowledged
            await asyncio.sleep(0.1)
            continue
        seen.append(followed)
        async with asyncio.timeout(60):
            while not followed.over:
                followed.breaks += 1
                await asyncio.sleep(0.1)
                last = followed.seqs[-1]
                await read(client, rpc("SubscribeToTask", {"id": followed.task_id}), followed, last)


@pytest.mark.parametrize("processes", [1, 2])
async def test_restarts_under_load(tmp_path: Path, figures: Figures, full: bool, processes: int) -> None:
    """Every stream ends with a number to resume from; every acknowledged task completes, with all chunks once and in
    order; the old server ends by itself, with exit code 0, soon after its drain time.
    """
    restarts = 6 if full else 2
    url = f"sqlite:///{tmp_path}/tasks.db"
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    seen: list[Followed] = []
    stop = asyncio.Event()
    stops: list[float] = []
    server = serve(port, url, processes)
    limits = httpx2.Limits(max_keepalive_connections=0)
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, limits=limits) as client:
            await ready(client)
            clients = [asyncio.create_task(load(client, f"c{each}", seen, stop)) for each in range(CLIENTS)]
            for _ in range(restarts):
                await asyncio.sleep(1.5)
                began = time.monotonic()
                server.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(server.wait, 60) == 0
                stops.append(time.monotonic() - began)
                server = serve(port, url, processes)
                await ready(client)
            stop.set()
            await asyncio.gather(*clients)
            for followed in seen:
                assert followed.seqs == sorted(set(followed.seqs)), "an event came twice, or out of order"
                assert list(followed.text.values()) == [WORDS]
                got = (await client.post("/", json=rpc("GetTask", {"id": followed.task_id}))).json()["result"]
                assert got["status"]["state"] == "TASK_STATE_COMPLETED"
                assert "".join(part["text"] for part in got["artifacts"][0]["parts"]) == WORDS
    finally:
        server.terminate()  # not killed, because the processes of a killed pool would stay alive
        server.wait(60)
    broken = [followed for followed in seen if followed.breaks]
    figures(
        f"SIGTERM under load, {processes} processes",
        restarts=restarts,
        tasks=len(seen),
        streams_broken_off=len(broken),
        lost=0,
        s_slowest_stop=max(stops),
    )
    assert broken
    assert max(stops) < DRAIN_SECONDS + 15
