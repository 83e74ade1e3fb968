"""Texts of agents and clients are never executed; the page is accessible."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from tests.ui.agent import EVIL
from tests.ui.conftest import OpenPage
from tests.ui.stage import PREFIX, Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

TABS = ("overview", "timeline", "waterfall", "replay", "webhooks", "raw")
ALL = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
VIEWS = ("agent", "agent?tab=checks", "agent?tab=raw", "try", "tasks", "sessions", "turns", "data", "system")


async def test_strings_of_agents_and_clients_are_text_everywhere(tmp_path: Path, open_page: OpenPage) -> None:
    """`watched` fails if `window.hacked` is set, the policy blocks something, or a request leaves the origin."""
    async with Stage(tmp_path, "--evil") as agent:
        bad = EVIL.format("client")
        task_id = await agent.send(f"evil {bad}", contextId=bad, metadata={bad: bad})
        steered = await agent.send("listen", now=True)
        await agent.client.post(f"{PREFIX}/tasks/{steered}/steer", json={"kind": "inject", "reason": bad})
        page = await open_page(agent.at())
        await expect(page.locator("h1")).to_have_text(EVIL.format("name"))
        for place in (*VIEWS, *(f"tasks/{each}?tab={tab}" for tab in TABS for each in (task_id, steered))):
            await page.goto(agent.at(place))
            await page.wait_for_timeout(150)
        await page.goto(agent.at(f"tasks/{task_id}?tab=timeline"))
        for row in await page.locator(".vrow").all():
            await row.click()
            await expect(page.locator(".detail h3")).to_be_visible()
        await page.goto(agent.at(f"tasks/{steered}"))
        await page.get_by_role("button", name=EVIL.format("button")).click()  # a button that the card declares
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name=EVIL.format("button")).click()
        await expect(dialog).to_have_count(0)
        await page.goto(agent.at(f"tasks/{task_id}"))
        await expect(page.locator("a[href^=javascript]")).to_have_count(0)
        await page.goto(agent.at(f"try?text={bad}&task={bad}&context={bad}&skill={bad}"))
        await page.get_by_role("button", name="Send").click()
        await page.goto(agent.at(f"tasks?text={bad}&context={bad}&state={bad}&owner={bad}"))
        await page.goto(agent.at(f"tasks/{bad}?event={bad}&tab={bad}&at={bad}"))
        await page.get_by_role("button", name="Calls").click()
        await page.wait_for_timeout(200)
        assert await page.locator("main img[src=x], main script").count() == 0


async def test_the_browser_itself_refuses_html(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at(), expected="TrustedHTML")
    refused = await page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return ''; } catch (error) { return error.name; } }"
    )
    assert refused == "TypeError"


async def check(page: Page, *rules: str) -> list[str]:
    found = await Axe().run(page, options={"resultTypes": ["violations"], "runOnly": list(rules) or ALL})
    return [
        f"{each['id']}: {each['help']} {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in found.response["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_accessible(agent: Stage, open_page: OpenPage, scheme: str) -> None:
    """The light theme passes all rules; the dark theme passes the rules about colours."""
    task_id = await agent.send("deploy")
    rules = () if scheme == "light" else ("color-contrast",)
    page = await open_page(agent.at(), color_scheme=scheme, bypass_csp=True)
    background = await page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor")
    assert (background == "rgb(21, 24, 23)") is (scheme == "dark")
    wrong = {}
    for place in (*VIEWS, *(f"tasks/{task_id}?tab={tab}" for tab in TABS)):
        await page.goto(agent.at(place))
        await page.wait_for_selector("h1")
        await page.wait_for_timeout(200)
        if found := await check(page, *rules):
            wrong[place] = found
    await page.get_by_role("button", name="Calls").click()
    if found := await check(page, *rules):
        wrong["calls"] = found
    assert not wrong


@pytest.mark.parametrize("width", [360, 768, 1920])
async def test_it_fits_every_screen(agent: Stage, open_page: OpenPage, width: int) -> None:
    task_id = await agent.send("deploy")
    page = await open_page(agent.at(), viewport={"width": width, "height": 800})
    for place in (*VIEWS, *(f"tasks/{task_id}?tab={tab}" for tab in TABS)):
        await page.goto(agent.at(place))
        await page.wait_for_timeout(150)
        wide = await page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, (place, wide)


async def test_an_idle_page_sends_no_requests(agent: Stage, open_page: OpenPage) -> None:
    """Only the stream stays open."""
    page = await open_page(agent.at("tasks"))
    await expect(page.locator("#connection")).to_have_text("Live")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.wait_for_timeout(3000)
    assert asked == []
