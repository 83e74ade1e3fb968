"""Draws the picture of the dashboard: python -m tests.integration.deploy.picture

Grafana is in none of the package registries that the project's machines reach. This program reads the panels and their
queries from the dashboard's JSON, queries a real Prometheus that scraped a real agent, and draws the results in
Chromium.
"""

from __future__ import annotations

import asyncio
import html
import random
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

from playwright.async_api import async_playwright

from keelbolt.testing.postgres import postgres_server
from tests.integration.deploy.watched import ROOT, Watched, expression, panels, watched
from tests.integration.webhooks.receiver import receiving
from tests.ui.conftest import FLAGS

PICTURE = ROOT / "docs/images/dashboard.png"
COLOURS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#b877d9", "#e02f44")
COLUMN, ROW, WIDTH, HEIGHT = 58, 26, 440, 140  # pixels of a cell of the grid, and of a chart
STYLE = """body{margin:0;background:#111217;color:#ccccdc;font:12px sans-serif;width:1400px;position:relative}
div{position:absolute;background:#181b1f;border:1px solid #2c3235;box-sizing:border-box;padding:8px;overflow:hidden}
b{font-weight:600}.v{font-size:34px;color:#73bf69;text-align:center;padding-top:8px}svg{display:block;margin-top:6px}
i{font-style:normal;margin-right:10px}text{fill:#8e8e99;font-size:10px}"""

Series = Sequence[tuple[str, list[tuple[float, float]]]]


async def load(found: Watched, seconds: float, hook: str) -> None:
    """Send work of all kinds for a while, with a busy period in the middle."""
    began = time.monotonic()
    doomed = [seconds / 4, seconds / 2]  # times of a task that kills its process and a break of all connections
    while (passed := time.monotonic() - began) < seconds:
        if doomed and passed > doomed[0]:
            doomed.pop(0)
            await found.send("die")
            found.proxy.cut()
        busy = seconds / 3 < passed < seconds / 2
        for _ in range(random.randrange(30 if busy else 6)):
            kind = random.choices(("steps", "hold 1", "ok", "fail"), (8, 2, 6, 1))[0]
            await found.send(kind, hook=hook if random.random() < 0.3 else None)
        await asyncio.sleep(0.5)


async def series(found: Watched, target: dict[str, Any], start: float, end: float) -> Series:
    query: dict[str, str | float] = {"start": start, "end": end, "step": 3}
    query["query"] = expression(target["expr"], window="30s")
    answer = await found.client.get(f"{found.prometheus}/api/v1/query_range", params=query)
    drawn = []
    for result in answer.json()["data"]["result"]:
        name = target["legendFormat"]
        for label, value in result["metric"].items():
            name = name.replace(f"{{{{{label}}}}}", value)
        drawn.append((name, [(float(at), float(value)) for at, value in result["values"] if value != "NaN"]))
    return drawn


def shown(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def chart(found: Series, unit: str, start: float, end: float) -> str:
    top = max((value for _, points in found for _, value in points), default=1.0) or 1.0
    lines, names = [], []
    for number, (name, points) in enumerate(found):
        colour = COLOURS[number % len(COLOURS)]
        place = " ".join(
            f"{(at - start) / (end - start) * WIDTH:.0f},{HEIGHT - value / top * (HEIGHT - 12):.0f}"
            for at, value in points
        )
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{place}"/>')
        names.append(f'<i><span style="color:{colour}">━</span> {html.escape(name)}</i>')
    scale = (
        f'<text x="0" y="9">{shown(top, unit)}</text><line x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}" stroke="#2c3235"/>'
    )
    return f'<svg width="{WIDTH}" height="{HEIGHT}">{"".join(lines)}{scale}</svg>{"".join(names)}'


async def page(found: Watched, start: float, end: float) -> str:
    parts = []
    for panel in panels():
        place, unit = panel["gridPos"], panel["fieldConfig"]["defaults"]["unit"]
        drawn = [each for target in panel["targets"] for each in await series(found, target, start, end)]
        if panel["type"] == "stat":
            value = drawn[0][1][-1][1] if drawn and drawn[0][1] else 0.0
            inside = f'<p class="v" style="margin:0">{shown(value, unit)}</p>'
        else:
            inside = chart(drawn, unit, start, end)
        box = f"left:{place['x'] * COLUMN}px;top:{place['y'] * ROW}px;width:{place['w'] * COLUMN - 6}px"
        parts.append(f'<div style="{box};height:{place["h"] * ROW - 6}px"><b>{panel["title"]}</b>{inside}</div>')
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels()) * ROW
    return f'<meta charset="utf-8"><style>{STYLE}</style><body style="height:{height}px">{"".join(parts)}'


async def main(seconds: float) -> None:
    with postgres_server() as server, server.database() as url:
        async with receiving() as receiver, watched(url, concurrency=10) as found, async_playwright() as playwright:
            start = time.time()
            await load(found, seconds, receiver.url)
            drawn = await page(found, start, time.time())
            browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
            sheet = await browser.new_page(viewport={"width": 1400, "height": 940})
            await sheet.set_content(drawn)
            await sheet.screenshot(path=PICTURE)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 300.0))
