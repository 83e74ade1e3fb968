"""Measures the explorer in a real browser: its weight, its first render, a long task, and the cost of an idle page.

Needs Playwright and a Chromium on the path.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

from benchmarks.http_load import answer, message, request
from benchmarks.processes import Served
from benchmarks.report import Report
from benchmarks.server import served
from keelbolt.errors import KeelboltError, MissingExtra
from keelbolt.explorer.app import static_files

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
IDLE_SECONDS = 10.0

RENDERED = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("main h1")) return;
  window.rendered = performance.now();
  observer.disconnect();
}).observe(document, {childList: true, subtree: true});
"""
"""Records the time when the first view is rendered."""

LAST_ENTRY = """() => [...document.querySelectorAll(".timeline .vrow")].some(
  (row) => row.ariaPosInSet === row.ariaSetSize && Number(row.ariaSetSize) >= 10000
)"""
"""Whether the last entry of the log is among the rows that the timeline shows."""

SCROLL = """async () => {
  const list = document.querySelector(".virtual");
  const times = [];
  for (let turn = 0; turn < 120; turn += 1) {
    list.scrollTop += list.scrollHeight / 120;
    const before = performance.now();
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - before);
  }
  return times.sort((one, other) => one - other);
}"""


async def run(*, quick: bool = False, progress: Callable[[str], None] = print) -> Report:
    """Return all figures of the explorer."""
    report = Report()
    sizes = [len(gzip.compress(file.body, 9)) for file in static_files().values()]
    report.at_most("page weight, compressed", sum(sizes) / 1000, "kB", 150)
    report.note("files", len(sizes), "")
    with tempfile.TemporaryDirectory() as folder:
        async with _browser() as browser, served("agent", f"sqlite:///{folder}/agent.db") as agent:
            progress("first render")
            await _first_render(report, browser, agent, 3 if quick else 10)
            progress("a task of 10,000 events")
            await _long_task(report, browser, agent, 3 if quick else 7)
            progress("an idle page")
            await _idle(report, browser, agent, IDLE_SECONDS / 2 if quick else IDLE_SECONDS)
    return report


async def _first_render(report: Report, browser: Any, agent: Served, rounds: int) -> None:
    after_load, whole = [], []
    for _ in range(rounds):
        async with _page(browser, agent, "agent") as page:
            loaded = await page.evaluate("() => performance.getEntriesByType('navigation')[0].loadEventStart")
            rendered = await page.evaluate("() => window.rendered")
            after_load.append(rendered - loaded)
            whole.append(rendered)
    report.at_most("first render after load", max(0.0, median(after_load)), "ms", 300)
    report.note("first render after the request, nothing cached", median(whole), "ms")


async def _long_task(report: Report, browser: Any, agent: Served, rounds: int) -> None:
    await _post(agent, message("stream 10000", "long"))
    opened: list[float] = []
    to_last: list[float] = []
    frames: list[float] = []
    for _ in range(rounds):
        async with _page(browser, agent, "tasks") as page:
            await page.click("td.said a")
            started = await page.evaluate("() => performance.now()")
            await page.wait_for_selector(".talk-column .artifact-card")
            opened.append(await page.evaluate("() => performance.now()") - started)
            started = await page.evaluate("() => performance.now()")
            await page.get_by_role("tab", name="Timeline").click()
            await page.wait_for_function(LAST_ENTRY)
            to_last.append(await page.evaluate("() => performance.now()") - started)
            await page.evaluate("() => { document.querySelector('.virtual').scrollTop = 0; }")
            frames += await page.evaluate(SCROLL)
    report.at_most("a task of 10,000 events opens", median(opened) / 1000, "s", 1.5)
    report.at_most("its timeline shows the last entry", median(to_last) / 1000, "s", 0.5)
    report.note("a frame while it is scrolled, p50", median(frames), "ms")
    report.note("the same, p99", sorted(frames)[int(len(frames) * 0.99)], "ms")


async def _idle(report: Report, browser: Any, agent: Served, seconds: float) -> None:
    before = await _cpu(agent, seconds)
    async with _page(browser, agent, "tasks") as page:
        asked: list[str] = []
        await page.wait_for_selector("#connection[data-state=live]")
        page.on("request", lambda each: asked.append(each.url))
        during = await _cpu(agent, seconds)
        report.at_most("requests of an idle page", len(asked), "", 0)
    report.note("CPU of the server, no open page", before * 1000, "ms per second")
    report.note("CPU of the server, one idle page", during * 1000, "ms per second")


async def _cpu(agent: Served, seconds: float) -> float:
    started = agent.cpu_seconds()
    await asyncio.sleep(seconds)
    return (agent.cpu_seconds() - started) / seconds


# ------------------------------------------------------------------------------------------------------------ the stage


@asynccontextmanager
async def _browser() -> AsyncIterator[Any]:
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        raise MissingExtra("dev", "playwright") from None
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise KeelboltError("no chromium on the path; install it to measure the explorer")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        await browser.close()


@asynccontextmanager
async def _page(browser: Any, agent: Served, view: str) -> AsyncIterator[Any]:
    """Open a view in a browser with an empty cache."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    page = await context.new_page()
    await page.add_init_script(RENDERED)
    await page.goto(f"http://127.0.0.1:{agent.port}/explorer/#/{view}")
    await page.wait_for_function("() => window.rendered")
    yield page
    await context.close()


async def _post(agent: Served, body: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", agent.port, limit=2**26)
    writer.write(request("POST", "/", body))
    await answer(reader)
    writer.close()
