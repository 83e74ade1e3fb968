"""Responses that arrive late: they do not replace what the page shows meanwhile, nor what the user types there."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Page, Route, expect
from starlette.middleware.cors import CORSMiddleware

from keelbolt.server.settings import ServerSettings
from tests.integration.client.serving import our_agent, sdk_agent, serving
from tests.ui.conftest import OpenPage
from tests.ui.stage import PREFIX, Stage
from tests.ui.test_agents import free_port

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def held(page: Page, pattern: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold back the response to the next such request. Return events: it was requested, and it may arrive."""
    requested, release = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        if requested.is_set():
            await route.continue_()
            return
        requested.set()
        found = await route.fetch()
        await release.wait()
        await route.fulfill(response=found)

    await page.route(pattern, hold)
    return requested, release


async def test_a_late_tab_does_not_replace_an_answer_being_typed(agent: Stage, open_page: OpenPage) -> None:
    task_id = await agent.send("deploy")
    page = await open_page(agent.at(f"tasks/{task_id}"))
    requested, release = await held(page, f"**/tasks/{task_id}/webhooks*")
    await page.get_by_role("tab", name="Webhooks").click()
    await requested.wait()
    await page.get_by_role("tab", name="Overview").click()
    await page.get_by_label("Or a custom answer").fill("wait until Monday")
    async with page.expect_response("**/webhooks*"):
        release.set()
    await page.wait_for_timeout(200)
    await expect(page.get_by_label("Or a custom answer")).to_have_value("wait until Monday")


async def test_a_late_state_does_not_replace_a_newer_one(agent: Stage, open_page: OpenPage) -> None:
    task_id = await agent.send("listen", now=True)
    page = await open_page(agent.at(f"tasks/{task_id}"))
    badge = page.locator(".task-head .badge")
    await expect(badge).to_have_text("Working")
    requested, release = await held(page, f"**/tasks/{task_id}?brief=true*")
    await agent.client.post(f"{PREFIX}/tasks/{task_id}/pause", json={"reason": "lunch"})
    await asyncio.wait_for(requested.wait(), 20)
    await agent.client.post(f"{PREFIX}/tasks/{task_id}/cancel", json={})
    await expect(badge).to_have_text("Canceled")
    async with page.expect_response("**/tasks/*?brief=true*"):
        release.set()
    await page.wait_for_timeout(200)
    await expect(badge).to_have_text("Canceled")


async def test_a_selection_ends_with_its_filter(own_agent: Stage, open_page: OpenPage) -> None:
    """Otherwise, the tasks of the earlier filter would be selected for the next bulk action."""
    for number in range(51):
        await own_agent.send(f"say {number}")
    await own_agent.send("fail now")
    page = await open_page(own_agent.at("tasks?state=completed"))
    rows = page.locator("table.tasks tbody tr")
    await expect(rows).to_have_count(50)
    await page.get_by_label("Select all shown").check()
    requested, release = await held(page, "**/tasks?*pageToken=*")
    await page.get_by_role("button", name="Select all 51 matches").click()
    await requested.wait()
    await page.get_by_role("button", name="Failed 1").click()
    await expect(rows).to_have_count(1)
    release.set()
    await page.wait_for_timeout(300)
    await expect(rows).to_have_count(1)
    await expect(page.get_by_role("group", name="Selected tasks")).to_be_hidden()


async def test_a_page_that_can_not_be_loaded_is_reported_and_requested_again(
    own_agent: Stage, open_page: OpenPage
) -> None:
    for number in range(51):
        await own_agent.send(f"say {number}")
    page = await open_page(own_agent.at("tasks"))
    rows = page.locator("table.tasks tbody tr")
    await expect(rows).to_have_count(50)
    await page.route("**/tasks?*pageToken=*", lambda route: route.abort(), times=2)
    await page.get_by_role("button", name="More").click()
    await expect(page.get_by_role("alert")).to_contain_text("can't be reached")
    await own_agent.send("say more")  # draws the list again, without the alert
    await expect(rows).to_have_count(51)
    await page.get_by_label("Select all shown").check()
    await page.get_by_role("button", name="Select all 52 matches").click()
    await expect(page.get_by_role("alert")).to_contain_text("can't be reached")
    await own_agent.send("say still more")
    await page.get_by_role("button", name="More").click()
    await expect(rows).to_have_count(53)


async def test_a_message_to_an_agent_of_another_vendor_is_sent_once(open_page: OpenPage) -> None:
    """The page sends no Idempotency-Key there, so a repeat could create a second task."""
    home, port = free_port(), free_port()
    other, page_origin = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{home}"
    app = CORSMiddleware(
        sdk_agent(other), allow_origins=[page_origin], allow_methods=["GET", "POST"], allow_headers=["*"]
    )
    settings = ServerSettings.of({}, explorer=True, explorer_agents=(other,))
    async with serving(app, port), our_agent(port=home, settings=settings):
        page = await open_page(f"{page_origin}/explorer/?agent={other}#/try", also=other)
        sent = 0

        async def cut(route: Route) -> None:
            nonlocal sent
            if route.request.method != "POST":
                await route.continue_()
                return
            sent += 1
            await route.abort("connectionreset")

        await page.route(f"{other}/**", cut)
        await page.get_by_label("Text", exact=True).fill("book a flight")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("alert")).to_contain_text("It may have received the message")
        assert sent == 1
