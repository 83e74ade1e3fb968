"""Threads, sessions and checkpoints of LangGraph, OpenAI Agents and Google ADK, as their adapters keep them."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from keelbolt.kernel import open_storage
from tests.integration.frameworks.kept import fill_adk, fill_langgraph, fill_openai
from tests.ui.conftest import OpenPage
from tests.ui.stage import PREFIX, Stage
from tests.ui.test_safety import check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_what_frameworks_keep_is_listed_shown_and_erased(tmp_path: Path, open_page: OpenPage) -> None:
    evil = "<img src=x onerror=window.hacked=1>"
    async with open_storage(f"sqlite:///{tmp_path}/agent.db") as kernel:
        await fill_langgraph(kernel, "trip to Lisbon", user="alice", canary="canary")
        await fill_langgraph(kernel, evil, user="bob", canary=evil)
        await fill_openai(kernel, "chat-1", canary="canary")
        await fill_adk(kernel, "s-1", user="alice", canary="canary")
    async with Stage(tmp_path) as agent:
        page = await open_page(agent.at("data"), bypass_csp=True)
        rows = page.locator("tbody tr")
        await expect(page.get_by_role("link", name=evil, exact=True)).to_be_visible()
        assert not await check(page)
        await page.get_by_role("link", name="trip to Lisbon", exact=True).click()
        await expect(page.locator("h1")).to_have_text("trip to Lisbon")
        await expect(page.get_by_role("tab", selected=True)).to_contain_text("Checkpoints")
        await rows.first.get_by_role("link").click()
        await expect(page.get_by_text("State at this checkpoint")).to_be_visible()
        await expect(page.locator(".card").first).to_contain_text('"canary"')
        assert not await check(page)
        await page.go_back()
        await page.get_by_role("button", name="Erase").click()
        await page.get_by_role("dialog").get_by_role("button", name="Erase permanently").click()
        await expect(page.locator("h1")).to_have_text("Data")
        await expect(page.get_by_role("link", name="trip to Lisbon")).to_have_count(0)
        subject = {"kind": "thread", "id": "trip to Lisbon", "tenant": "default"}
        assert (await agent.client.get(f"{PREFIX}/data/subject", params=subject)).status_code == 404
        await page.get_by_role("tab", name="OpenAI Agents").click()
        await page.get_by_role("link", name="chat-1").click()
        await expect(page.get_by_role("tab", selected=True)).to_have_text("Items30")
        await rows.first.get_by_role("link").click()
        await expect(page.locator(".card").first).to_contain_text("canary 29")
        await page.goto(agent.at("data?face=google_adk"))
        await page.get_by_role("link", name="shop / alice / s-1").click()
        await expect(page.get_by_role("tab", selected=True)).to_have_text("Events10")
        await expect(page.locator("li.card").first).to_contain_text("canary 0")
