"""`ctx.relay` to servers of other projects: a lost attempt in the middle of a stream, a question, a cancel."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.client import A2AClient, TaskState
from keelbolt.tasks import TaskContext
from keelbolt.testing import WorkerHarness
from tests.integration.client.test_peers import PEERS, Peer, running

pytestmark = pytest.mark.peers

COUNT = 10


@pytest.mark.parametrize("name", PEERS)
async def test_a_relay_to_every_peer(name: str) -> None:
    async with running(name) as peer:
        for binding, version in PEERS[name]:
            async with A2AClient(f"http://127.0.0.1:{peer.port}", bindings=[binding], versions=[version]) as client:
                await lost_in_a_stream(peer, client)
                if name != "apcore_a2a":  # its modules ask no questions
                    await asked(client, continued=name != "fasta2a")  # fasta2a can't continue a task
                    await cancelled(client)


async def lost_in_a_stream(peer: Peer, client: A2AClient) -> None:
    options: dict[str, Any] = peer.message(f"stream {COUNT} 0.1")

    async def worker(ctx: TaskContext) -> None:
        await ctx.relay(client, **options)
        await ctx.complete()

    async with WorkerHarness(worker, seconds=60) as agent:
        await agent.send("go", wait=False)
        await agent.until(lambda: any(body.get("result") and "task" in body["result"] for _, body in agent.events))
        await asyncio.sleep(0.35)
        task = await agent.crash()
        assert agent.state == "completed", agent.text
        parts = [part for artifact in task.artifacts for part in artifact.parts]
        if peer.name == "apcore_a2a":
            assert [part.data for part in parts] == peer.chunks(COUNT)
        else:
            assert "".join(part.text or "" for part in parts).startswith("".join(peer.chunks(COUNT)))
            assert "".join(part.text or "" for part in parts).count("3 ") == 1


async def asked(client: A2AClient, *, continued: bool) -> None:
    async def worker(ctx: TaskContext) -> None:
        await ctx.relay(client, "ask")
        await ctx.complete()

    async with WorkerHarness(worker, seconds=60) as agent:
        await agent.send("go")
        assert (agent.state, agent.text) == ("input_required", "Which one?")
        if not continued:
            return
        await agent.crash()
        await agent.answer("red")
        assert agent.state == "completed", agent.text
        assert "red" in "".join(agent.artifacts.values())


async def cancelled(client: A2AClient) -> None:
    remote: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        await ctx.relay(client, "wait")

    async with WorkerHarness(worker, seconds=60) as agent:
        await agent.send("go", wait=False)

        def begun() -> bool:
            remote[:] = [body["result"]["task"] for _, body in agent.events if "task" in (body.get("result") or {})]
            return bool(remote)

        await agent.until(begun)
        await agent.cancel()
        assert agent.state == "canceled"
    assert (await client.get_task(remote[-1])).status.state is TaskState.canceled
