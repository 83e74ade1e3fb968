"""Takes the picture of the README, in the explorer of what `make run` starts: python -m tests.ui.screenshot"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from playwright.async_api import async_playwright

from tests.ui.conftest import FLAGS
from tests.ui.stage import ROOT, made_run

PICTURE = ROOT / "docs/images/explorer.png"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with made_run(Path(folder)) as address, async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
            page = await browser.new_page(viewport={"width": 1200, "height": 704})
            await page.goto(f"{address}/#/try?text=survive%20a%20crash")
            await page.get_by_role("button", name="Send").click()
            await page.get_by_text("shipped in attempt 2").wait_for(timeout=20_000)
            await page.locator(".exchange a").click()
            await page.get_by_role("tab", name="Waterfall").click()
            await page.locator(".waterfall").wait_for()
            await page.mouse.move(0, 0)
            PICTURE.parent.mkdir(exist_ok=True)
            await page.screenshot(path=PICTURE)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
