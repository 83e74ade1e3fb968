"""Turns that wait at gates: questions are shown, checked, answered and rejected."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from tests.ui.conftest import OpenPage
from tests.ui.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_turn_continues_when_its_gates_are_answered(tmp_path: Path, open_page: OpenPage) -> None:
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
        await refreshed_until(page, "Where to?")
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


async def test_an_answer_being_typed_stays_when_the_gates_are_requested_again(
    tmp_path: Path, open_page: OpenPage
) -> None:
    """Two gates wait: an answer to one, or a slow response, does not clear the form of the other."""
    async with Stage(tmp_path, "--turns") as agent:
        await agent.send("order")
        page = await open_page(agent.at("turns?tab=open"))
        await expect(page.get_by_label("The question")).to_have_count(1)
        await agent.send("order")
        await refreshed_until(page, "How much?", 2)
        first, second = page.get_by_label("The question").nth(0), page.get_by_label("The question").nth(1)
        await second.get_by_label("Answer").fill("42")
        thread = await second.get_by_role("link").first.inner_text()
        await first.get_by_label("Answer").fill("7")
        release, requests = asyncio.Event(), 0

        async def slow_first(route: Route) -> None:
            nonlocal requests
            requests += 1
            if requests == 1:
                await release.wait()
                await route.fulfill(json={"gates": []})
            else:
                await route.continue_()

        await page.route("**/gates?*", slow_first)
        await page.get_by_role("button", name="Refresh").click()
        await first.get_by_role("button", name="Answer").click()
        await refreshed_until(page, "Where to?")
        async with page.expect_response("**/gates?*"):
            release.set()  # an earlier request: its response is not shown
        await page.wait_for_timeout(200)
        typed = page.get_by_label("The question").filter(has_text=thread)
        await expect(typed.get_by_label("Answer")).to_have_value("42")
        await expect(page.get_by_label("The question")).to_have_count(2)


async def test_a_gate_is_rejected_with_a_reason(tmp_path: Path, open_page: OpenPage) -> None:
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


async def refreshed_until(page: Page, text: str, count: int = 1) -> None:
    """Press Refresh until this many questions show the text: turns continue asynchronously."""
    found = page.get_by_label("The question").filter(has_text=text)
    for _ in range(50):
        async with page.expect_response("**/gates?*"):
            await page.get_by_role("button", name="Refresh").click()
        if await found.count() == count:
            break
        await page.wait_for_timeout(100)
    await expect(found).to_have_count(count)
