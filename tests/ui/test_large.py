"""A task of ten thousand events opens at once and scrolls smoothly."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.ui.conftest import OpenPage
from tests.ui.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCROLL = """async () => {
  const list = document.querySelector(".virtual");
  const times = [];
  let most = 0;
  for (let turn = 0; turn < 90; turn += 1) {
    list.scrollTop += list.scrollHeight / 90;
    const before = performance.now();
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - before);
    most = Math.max(most, list.querySelectorAll(".vrow").length);
  }
  times.sort((one, other) => one - other);
  return {median: times[45], worst: times.at(-1), rows: most};
}"""


async def test_ten_thousand_events(agent: Stage, open_page: OpenPage, capsys: pytest.CaptureFixture[str]) -> None:
    task_id = await agent.send("count to 10000")
    page = await open_page(agent.at("agent"))
    started = await page.evaluate("() => performance.now()")
    await page.evaluate("place => { location.hash = place; }", f"#/tasks/{task_id}?tab=timeline")
    await expect(page.locator(".timeline")).to_contain_text("10,005 entries")
    opened = await page.evaluate("() => performance.now()") - started
    scrolled = await page.evaluate(SCROLL)
    with capsys.disabled():
        print(
            f"\n10,005 entries opened in {opened:.0f} ms; a frame while scrolling: {scrolled['median']:.1f} ms, "
            f"at worst {scrolled['worst']:.1f} ms, with {scrolled['rows']} rows"
        )
    assert scrolled["rows"] < 100  # only what can be seen exists
    await page.get_by_label("Search the log").fill("numbers + 7777")
    await expect(page.locator(".vrow")).to_have_count(1)
    await page.get_by_label("Search the log").fill("")
    again = await open_page(agent.at(f"tasks/{task_id}?event=5000"))
    await expect(again.locator(".detail h3")).to_have_text("#5000 Artifact")
    await expect(again.locator(".vrow[aria-selected=true]")).to_be_in_viewport()
    await again.get_by_role("button", name="Task at this entry").click()
    await expect(again.locator(".replay-line")).to_contain_text("#5000 of 10005")
    artifact = again.locator("section.card").first.locator(".artifact")
    await artifact.get_by_role("button", name="show all").click()
    assert (await artifact.inner_text()).rstrip().endswith("4995 4996")
