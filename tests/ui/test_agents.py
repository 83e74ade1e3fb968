"""One page for several agents: those that the operator lists; Keelbolt agents have more views."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from starlette.middleware.cors import CORSMiddleware

from keelbolt.server.settings import ServerSettings
from tests.integration.client.serving import our_agent, sdk_agent, serving
from tests.integration.server.serving import free_socket
from tests.ui.conftest import OpenPage
from tests.ui.test_safety import check

pytestmark = pytest.mark.asyncio(loop_scope="session")


def free_port() -> int:
    with free_socket() as bound:
        port: int = bound.getsockname()[1]
        return port


async def test_an_agent_of_another_vendor_is_shown_and_called(open_page: OpenPage) -> None:
    """The page loads the card by URL; the operator's list and the agent's CORS settings allow the connection."""
    home, port = free_port(), free_port()
    other = f"http://127.0.0.1:{port}"
    page_origin = f"http://127.0.0.1:{home}"
    app = CORSMiddleware(
        sdk_agent(other),
        allow_origins=[page_origin],
        allow_methods=["GET", "POST"],
        allow_headers=["Content-Type", "A2A-Version", "Last-Event-ID"],
    )
    settings = ServerSettings.of({}, explorer=True, explorer_agents=(f"{other}/.well-known/agent-card.json",))
    async with serving(app, port), our_agent(port=home, settings=settings):
        page = await open_page(f"{page_origin}/explorer/#/agent", also=other, bypass_csp=False)
        await page.get_by_label("Agent", exact=True).select_option(label=f"127.0.0.1:{port}")
        await expect(page.locator("h1")).to_have_text("Official")
        await expect(page.locator("#nav a")).to_have_text(["Agent", "Try"])  # it has no operations API
        await expect(page.get_by_role("link", name="Show tasks")).to_have_count(0)
        await page.goto(f"{page_origin}/explorer/?agent={other}#/try")
        await page.get_by_label("Text", exact=True).fill("hello over there")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".exchange").last).to_contain_text("You said: hello over there")


async def test_another_keelbolt_agent_has_all_views(open_page: OpenPage) -> None:
    home, port = free_port(), free_port()
    other, page_origin = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{home}"
    settings = ServerSettings.of({}, explorer=True, explorer_agents=(other,))
    theirs = ServerSettings.of({}, cors_origins=(page_origin,))
    async with our_agent(port=port, settings=theirs), our_agent(port=home, settings=settings):
        page = await open_page(f"{page_origin}/explorer/?agent={other}#/try", also=other)
        await page.get_by_label("Text", exact=True).fill("hello over there")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".exchange").last).to_contain_text("Completed")
        await page.get_by_role("link", name="Tasks", exact=True).click()
        await expect(page.locator("td.said a")).to_have_text(["hello over there"])
        await page.get_by_label("Agent", exact=True).select_option(label=f"127.0.0.1:{home}")
        await page.get_by_role("link", name="Tasks", exact=True).click()
        await expect(page.get_by_text("No tasks yet")).to_be_visible()


async def test_an_agent_that_is_not_listed_is_refused(open_page: OpenPage) -> None:
    """The page shows the reason and does not call the agent; its security policy would block the call."""
    async with our_agent(settings=ServerSettings.of({}, explorer=True)) as url:
        page = await open_page(f"{url}/explorer/?agent=http://127.0.0.1:9#/agent", bypass_csp=True)
        await expect(page.get_by_role("alert")).to_contain_text("KEELBOLT_EXPLORER_AGENTS=http://127.0.0.1:9")
        assert not await check(page)
        await page.get_by_role("link", name="Show the agent that serves this page").click()
        await page.get_by_label("URL of an agent").fill("https://agent.example")
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("This page may not connect to https://agent.example")
    async with our_agent(settings=ServerSettings.of({}, explorer=True)) as url:
        page = await open_page(f"{url}/explorer/#/agent", expected="Content Security Policy")
        refused = "() => fetch('http://127.0.0.1:9/').then(() => '', (error) => error.name)"
        assert await page.evaluate(refused) == "TypeError"


async def test_an_agent_without_cors_gets_advice(open_page: OpenPage) -> None:
    async with our_agent() as other:
        settings = ServerSettings.of({}, explorer=True, explorer_agents=(other,))
        async with our_agent(settings=settings) as url:
            page = await open_page(f"{url}/explorer/?agent={other}#/agent", also=other)
            await expect(page.get_by_role("alert")).to_contain_text("(CORS)")
