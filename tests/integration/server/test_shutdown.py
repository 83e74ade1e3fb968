"""SIGTERM: streams end with a retry hint, the process ends in time, and no acknowledged data is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import httpx2
import pytest

from tests.integration.server.process import running
from tests.integration.server.reading import events, resumed, rpc, sending

ENVIRONMENT = {"KEELBOLT_DRAIN_SECONDS": "1", "KEELBOLT_LEASE_SECONDS": "3"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_streams_end_with_a_retry_hint(tmp_path: Path, number: int) -> None:
    """Every open stream gets `retry` and ends; the process ends soon after."""
    async with running(f"sqlite:///{tmp_path}/tasks.db", **ENVIRONMENT) as process, process.client() as client:
        tails: list[list[str]] = []

        async def read(message_id: str, begun: asyncio.Event) -> None:
            asked = rpc("SendStreamingMessage", sending("wait", message_id))
            lines: list[str] = []
            async with client.stream("POST", "/", json=asked) as response:
                async for line in response.aiter_lines():
                    lines.append(line)
                    begun.set()
            tails.append(lines[-2:])

        waiting = [asyncio.Event() for _ in range(5)]
        readers = [asyncio.create_task(read(f"m{i}", event)) for i, event in enumerate(waiting)]
        for event in waiting:
            await event.wait()
        begun = time.monotonic()
        code = await process.stop(number)
        await asyncio.gather(*readers)
        assert tails == [["retry: 1000", ""]] * 5
        assert time.monotonic() - begun < 8
        assert code in (0, -number)
        with pytest.raises(httpx2.ConnectError):
            await client.get("/health")


async def test_the_stream_continues_in_the_next_process(tmp_path: Path) -> None:
    """A rolling restart: the first process stops in the middle of a task; the second finishes it and the stream."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with running(url, **ENVIRONMENT) as first, first.client() as client:
        asked = rpc("SendStreamingMessage", sending(f"until {tmp_path}/go"))
        async with client.stream("POST", "/", json=asked) as response:
            reading = events(response)
            _, opened = await anext(reading)
            last, _ = await anext(reading)
            stopping = asyncio.create_task(first.stop())
            rest = [event async for event in reading]
            await stopping
    assert last is not None
    (tmp_path / "go").touch()
    async with running(url, **ENVIRONMENT) as second, second.client() as client:
        after = rest[-1][0] if rest else last
        found = await resumed(client, opened["task"]["id"], after or 0)
        assert found[-1][1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert [seq for seq, _ in found] == sorted({seq for seq, _ in found if seq is not None and seq > (after or 0)})


async def test_a_blocking_request_gets_its_response_before_the_end(tmp_path: Path) -> None:
    """A blocking send whose task ends while the process drains gets its response."""
    async with running(f"sqlite:///{tmp_path}/tasks.db", **ENVIRONMENT) as process, process.client() as client:
        sent = asyncio.create_task(client.post("/", json=rpc("SendMessage", sending("count 20 0.03"))))
        await asyncio.sleep(0.2)
        stopping = asyncio.create_task(process.stop())
        task = (await sent).json()["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        await stopping
