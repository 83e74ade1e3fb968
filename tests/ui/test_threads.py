"""Threads of turns: messages, thoughts, tool calls, retrievals and memories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from keelbolt.turns import SpooledArtifact, Tokenizable, durable_storage
from keelbolt.turns.in_memory import InMemoryMediaReader, InMemorySpoolReader
from tests.integration.turns.stage import Calls, Turn, image, memory, message, retrievable, thought, tool_call
from tests.ui.agent import EVIL, PIXEL
from tests.ui.conftest import OpenPage
from tests.ui.stage import Stage
from tests.ui.test_safety import check

pytestmark = pytest.mark.asyncio(loop_scope="session")

NOW = datetime.now(UTC)
BAD = EVIL.format("turns")
TIDES = "".join(f"{hour:02}:00  {hour % 7} m\n" for hour in range(24))
THREAD = "turns/watch%252F1?tenant=harbour"


def at(seconds: int) -> dict[str, Any]:
    moment = NOW - timedelta(minutes=10) + timedelta(seconds=seconds)
    return {"created_at": moment, "updated_at": moment}


async def keep_some(url: str, picture: bytes = PIXEL) -> None:
    """A thread with entries of every kind, a long thread, and a thread with hostile content."""
    async with durable_storage(url) as storage:

        def calls(turn: str, thread: str, agent: str = "pilot") -> Calls:
            return Calls(storage.callbacks(), Turn(turn, "harbour", thread, agent))

        evil = calls(BAD, BAD, BAD)
        media = image(InMemoryMediaReader(b"<svg onload=alert(1)>"), mime_type="image/svg+xml", filename=BAD)
        await evil.store_message(message(BAD, BAD, identity=BAD, attachments=[media], **at(0)))
        await evil.store_thought(thought(BAD, content=BAD, identity=BAD, **at(0)))
        await evil.store_tool_call(tool_call(BAD, BAD, tool=BAD, args={BAD: BAD, "api_key": "s3cret"}, **at(0)))
        await evil.store_retrievable(retrievable(BAD, BAD, source=BAD, kind=BAD, **at(0)))
        await evil.store_memory(memory(BAD, content=BAD, **at(0)))
        await evil.store_standing_instruction(Tokenizable(BAD, key=BAD))
        long = calls("turn-1", "long")
        for number in range(70):
            await long.store_message(message(f"m{number}", f"Message {number}", **at(number)))
        one, two = calls("turn-1", "watch/1"), calls("turn-2", "watch/1")
        await one.store_standing_instruction(Tokenizable("Say it in one sentence.", key="style"))
        await one.store_memory(memory("berth", 0.9, content="The Vega berths at pier 4.", confidence=0.8, **at(0)))
        chart = image(InMemoryMediaReader(picture), filename="chart.png")
        await one.store_message(message("m1", "Can the Vega come in tonight?", attachments=[chart], **at(0)))
        await one.store_thought(thought(content="Her draught is 5 m: I need the tides.", **at(2)))
        await one.store_retrievable(retrievable("r1", "Pier 4: 6 m at low water.", source="pilot book", **at(3)))
        tides = SpooledArtifact(InMemorySpoolReader(TIDES.encode()))
        await one.store_tool_call(tool_call("call_0", tides, tool="tides", args={"port": "Turku"}, **at(4)))
        await one.store_tool_call(
            tool_call("call_1", "no such pilot", tool="page_pilot", args={"who": "Åsa"}, is_error=True, **at(6))
        )
        await one.store_message(message("m2", "Yes, from 20:00 on.", role="assistant", **at(8)))
        await two.store_message(message("m3", "Tell her. " + "And the others. " * 2000, **at(60)))
        await two.store_tool_call(tool_call("call_0", tool="radio", args={"to": "Vega"}, **at(62)))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kept(agent: Stage) -> Stage:
    await keep_some(f"sqlite:///{agent.folder}/agent.db")
    return agent


async def test_a_thread_is_found_and_read(kept: Stage, open_page: OpenPage) -> None:
    page = await open_page(kept.at())
    await page.get_by_role("link", name="Turns").click()
    row = page.locator("tbody tr").first
    await expect(row).to_contain_text("user: Tell her.")
    await row.get_by_role("link", name="watch/1").click()
    await expect(page.locator("h1")).to_have_text("watch/1")
    entries = page.locator(".entry")
    await expect(entries).to_have_count(8)
    await expect(entries.nth(0)).to_contain_text("Can the Vega come in tonight?")
    await expect(entries.nth(0).locator("img")).to_have_js_property("naturalWidth", 1)
    await expect(entries.nth(1)).to_contain_text("Her draught is 5 m")
    await expect(entries.nth(2)).to_contain_text("pilot book")
    await expect(entries.nth(3)).to_contain_text("done")
    await expect(entries.nth(4)).to_contain_text("failed")
    await expect(entries.nth(5)).to_contain_text("Yes, from 20:00 on.")
    await expect(entries.nth(7)).to_contain_text("running")
    await expect(page.locator(".turn-line")).to_have_text(["Turn turn-1", "Turn turn-2"])
    await entries.nth(3).get_by_role("button", name="Show").click()
    await expect(entries.nth(3).locator("pre")).to_have_text(TIDES)
    async with page.expect_download() as download:
        await entries.nth(3).get_by_role("button", name="Download").click()
    assert (await (await download.value).path()).read_text() == TIDES
    beside = page.get_by_role("region", name="Memory")
    await expect(beside).to_contain_text("The Vega berths at pier 4.")
    await expect(beside).to_contain_text("Say it in one sentence.")
    await expect(beside).to_contain_text("Of the agent pilot")
    await expect(entries.nth(6)).to_contain_text("characters)")
    await entries.nth(6).get_by_role("button", name="Show all").click()
    await expect(entries.nth(6)).not_to_contain_text("characters)")
    await page.get_by_role("tab", name="Raw").click()
    await expect(page.locator(".raw pre")).to_contain_text("Yes, from 20:00 on.")


async def test_an_entry_has_an_address(kept: Stage, open_page: OpenPage) -> None:
    page = await open_page(kept.at("turns/long?tenant=harbour"))
    await expect(page.locator(".entry")).to_have_count(50)
    await expect(page.locator(".entry").last).to_contain_text("Message 69")
    await page.get_by_role("button", name="Earlier").click()
    await expect(page.locator(".entry")).to_have_count(70)
    await expect(page.get_by_role("button", name="Earlier")).to_be_hidden()
    await page.locator(".entry").nth(3).locator(".entry-time").click()
    again = await open_page(page.url)
    chosen = again.locator(".entry[aria-current=true]")
    await expect(chosen).to_contain_text("Message 3")
    await expect(chosen).to_be_in_viewport()
    await again.get_by_role("link", name="Latest").click()
    await expect(again.locator(".entry").last).to_contain_text("Message 69")


async def test_stored_content_is_shown_as_text(kept: Stage, open_page: OpenPage) -> None:
    page = await open_page(kept.at("turns?tenant=harbour"))
    await page.locator("tbody a").last.click()
    await expect(page.locator(".entry")).to_have_count(4)
    for summary in await page.get_by_text("All stored fields").all():
        await summary.click()
        await expect(summary.locator("xpath=..").locator(".json")).to_be_visible()
    assert "s3cret" not in await page.locator("main").inner_text()
    await page.get_by_role("tab", name="Raw").click()
    assert "s3cret" not in await page.locator("main").inner_text()
    assert await page.locator("main img, main script").count() == 0


async def test_an_empty_store_is_shown_as_empty(own_agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(own_agent.at("turns"))
    await expect(page.get_by_text("No threads")).to_be_visible()
    await page.get_by_role("tab", name="Waiting").click()
    await expect(page.get_by_text("No waiting turns")).to_be_visible()
    await page.goto(own_agent.at("turns/unknown"))
    await expect(page.get_by_role("alert")).to_contain_text("there is no such thread")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_accessible_and_fits(kept: Stage, open_page: OpenPage, scheme: str) -> None:
    page = await open_page(kept.at(), color_scheme=scheme, bypass_csp=True)
    for place in ("turns?tenant=harbour", THREAD, "turns?tab=settled"):
        await page.goto(kept.at(place))
        await expect(page.locator(".entry, tbody tr, .empty").first).to_be_visible()
        assert not await check(page), place
    for width in (360, 1000, 1920):
        await page.set_viewport_size({"width": width, "height": 800})
        for place in ("turns?tenant=harbour", THREAD):
            await page.goto(kept.at(place))
            await expect(page.locator(".entry, tbody tr").first).to_be_visible()
            wide = await page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, (place, width, wide)
