"""The workers of examples/ in a `WorkerHarness`: their questions, lost attempts, cancels and sleeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo.guide import Guide, card
from examples.shop_agent import make_clerk
from examples.workers import long_job, outside, pydantic_ai_shop
from examples.workers.relay import Reception
from keelbolt.client import A2AClient
from keelbolt.server import A2AServer
from keelbolt.testing import WorkerHarness


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give the workers a ledger in a temporary folder, and a faster pace."""
    monkeypatch.setattr(outside, "LEDGER", tmp_path / "ledger.txt")
    monkeypatch.setattr(outside, "PACE_SECONDS", 0.01)
    return tmp_path


# --------------------------------------------------------------------------------------------------------- the guide


async def test_the_guide_counts_anew_after_a_lost_attempt() -> None:
    async with WorkerHarness(Guide(pace=0.1)) as agent:
        await agent.send("count to 30", wait=False)
        await agent.until(lambda: "5 " in agent.artifacts.get("numbers", ""))
        await agent.crash()
        assert agent.artifacts == {"numbers": "".join(f"{number} " for number in range(1, 31))}


async def test_the_guide_releases_what_was_approved_and_nothing_else() -> None:
    async with WorkerHarness(Guide(pace=0)) as agent:
        await agent.send("deploy the site")
        assert agent.state == "input_required"
        assert agent.steps == {"build": "done"}
        await agent.answer("no")
        assert (agent.state, agent.text) == ("rejected", "Not released.")
        await agent.send("deploy the site")
        await agent.answer("yes", wait=False)
        await agent.crash()
        assert agent.artifacts == {"final-answer": "Released."}


async def test_the_guide_books_once() -> None:
    async with WorkerHarness(Guide(pace=0)) as agent:
        await agent.send("book a table")
        assert agent.text == "For what time?"
        task = await agent.answer("eight")
        booking = task.artifacts[0].parts[0].data
        assert isinstance(booking, dict)
        assert (booking["time"], booking["reference"]) == ("eight", f"{task.id}/2/book")


async def test_the_guide_packs_each_parcel_once() -> None:
    async with WorkerHarness(Guide(pace=0.03)) as agent:
        await agent.send("work through 9 parcels", wait=False)
        await agent.until(lambda: agent.steps.get("parcel 3") == "done")
        await agent.crash()
        assert agent.artifacts == {"final-answer": "9 parcels, each packed once, by one process."}
        done = [body["step"] for kind, body in agent.events if kind == "step" and body["state"] == "done"]
        assert done == [f"parcel {number}" for number in range(1, 10)]


async def test_the_guide_remembers_a_conversation() -> None:
    async with WorkerHarness(Guide(pace=0)) as agent:
        await agent.send("remember blue", context_id="kitchen")
        await agent.send("remember green", context_id="kitchen")
        await agent.send("what do you remember?", context_id="kitchen")
        assert agent.text == "I remember: blue, green."
        await agent.send("what do you remember?", context_id="elsewhere")
        assert agent.text == "I remember: nothing yet."


async def test_the_guide_waits_without_a_process() -> None:
    async with WorkerHarness(Guide(pace=0)) as agent:
        await agent.send("wait 3600")
        assert agent.state == "working"
        await agent.crash()
        assert agent.state == "working"
        await agent.advance(3600)
        assert (agent.state, agent.text.split(" (")[0]) == ("completed", "3600 seconds are over")
        await agent.send("break down")
        assert (agent.state, agent.text) == ("failed", "The engine is out of oil.")


# -------------------------------------------------------------------------------------------------------- the clerk


async def test_the_clerk_pays_after_an_approval_that_a_lost_attempt_waited_for(fast: Path) -> None:
    async with WorkerHarness(make_clerk(f"sqlite:///{fast}/clerk.db")) as agent:
        await agent.send("buy a kettle", context_id="kitchen")
        assert agent.state == "input_required"
        assert agent.text.startswith("May I pay 30 EUR for the kettle?")
        await agent.crash()
        await agent.answer("yes")
        assert agent.state == "completed"


# ------------------------------------------------------------------------------------------------------- the workers


async def test_the_shop_orders_once() -> None:
    async with WorkerHarness(pydantic_ai_shop.shop) as agent:
        await agent.send("a kettle, please", wait=False)
        await agent.until(lambda: agent.artifacts.get("answer", "").count(" ") >= 3)
        await agent.crash()
        assert agent.artifacts["answer"].strip() == outside.ANSWER
        assert set(agent.steps.values()) == {"done"}
        assert len(outside.LEDGER.read_text().splitlines()) == 1
        assert len(outside.LEDGER.read_text().splitlines()) == 1


async def test_the_printer_leaves_no_files_behind(fast: Path) -> None:
    async with WorkerHarness(long_job.printer) as agent:
        await agent.send("6", wait=False)
        await agent.until(lambda: agent.steps.get("page 2") == "done")
        await agent.crash()
        assert agent.state == "completed"
        [artifact] = agent.task.artifacts if agent.task is not None else []
        assert artifact.parts[0].filename == "book.txt"
        assert list(fast.glob("ledger.txt.*")) == []
        await agent.send("500", wait=False)
        await agent.until(lambda: agent.steps.get("page 2") == "done")
        await agent.cancel()
        assert agent.state == "canceled"
        assert list(fast.glob("ledger.txt.*")) == []


async def test_the_reception_passes_on_what_the_other_agent_asks() -> None:
    server = A2AServer(worker=Guide(pace=0), agent_card=card)
    async with A2AClient(app=server.app) as client, WorkerHarness(Reception(client)) as agent:
        await agent.send("book a table")
        assert (agent.state, agent.text) == ("input_required", "For what time?")
        await agent.crash()
        task = await agent.answer("eight")
        booking = task.artifacts[0].parts[0].data
        assert isinstance(booking, dict)
        assert booking["time"] == "eight"
        await agent.send("break down")
        assert (agent.state, agent.text) == ("failed", "The engine is out of oil.")
        await agent.send("what do you remember?")
        assert agent.artifacts == {"answer": "I remember: nothing yet."}
