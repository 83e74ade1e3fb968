"""Turns that wait for somebody: what they ask is shown, checked, answered and refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.ui.conftest import OpenPage
from tests.ui.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_turn_goes_on_when_its_gates_are_answered(tmp_path: Path, open_page: OpenPage) -> None:
    async with Stage(tmp_path, "--turns") as agent:
        task_id = await agent.send("order")
        page = await open_page(agent.at())
        await page.get_by_role("link", name="Turns").click()
        await page.get_by_role("tab", name="Waiting").click()
        gate = page.get_by_label("The question")
        await expect(gate).to_contain_text("How much?")
        await expect(gate).to_contain_text("order: 7")
        await gate.get_by_label("Answer").fill("101")
        await gate.get_by_role("button", name="Answer").click()
        await expect(gate.get_by_role("alert")).to_contain_text("is more than 100")
        await gate.get_by_label("Answer").fill("7")
        await gate.get_by_role("button", name="Answer").click()
        for _ in range(50):  # the turn goes on in its own time
            async with page.expect_response("**/gates?*"):
                await page.get_by_role("button", name="Refresh").click()
            if await gate.filter(has_text="Where to?").count():
                break
            await page.wait_for_timeout(100)
        await expect(gate).to_contain_text("Where to?")
        await gate.get_by_label("city (required)").fill("Turku")
        await gate.get_by_role("button", name="Answer").click()
        await expect(page.get_by_text("No waiting turns")).to_be_visible()
        await page.get_by_role("tab", name="Settled").click()
        await expect(page.locator("article.card")).to_have_count(2)
        await expect(page.locator("article.card").filter(has_text="How much?")).to_contain_text("resolved")
        await page.get_by_role("link", name="Open the task").first.click()
        await expect(page.locator("h1")).to_have_text("order")
        await expect(page.locator(".bubble.failed")).to_contain_text("7 to Turku")
        assert page.url.endswith(task_id)


async def test_a_gate_is_refused_with_a_reason(tmp_path: Path, open_page: OpenPage) -> None:
    async with Stage(tmp_path, "--turns") as agent:
        await agent.send("order")
        page = await open_page(agent.at("turns?tab=open"))
        await page.get_by_role("button", name="Reject").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("too dear")
        await dialog.get_by_role("button", name="Reject", exact=True).click()
        await expect(page.get_by_text("No waiting turns")).to_be_visible()
        await page.get_by_role("tab", name="Settled").click()
        await expect(page.locator("article.card")).to_contain_text("too dear")
