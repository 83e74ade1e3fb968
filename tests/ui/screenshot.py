"""Takes the screenshot of the tutorial Five minutes in the explorer of `make run`: python -m tests.ui.screenshot"""

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
            page = await browser.new_page(viewport={"width": 1200, "height": 840})
            await page.goto(f"{address}/#/try?text=work%20through%205%20parcels")
            await page.get_by_role("button", name="Send").click()
            await page.get_by_text("1 of 5").wait_for()
            await page.locator(".exchange a").click()
            await page.get_by_role("button", name="Kill its process").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_label("Reason").fill("to see what happens")
            await dialog.get_by_role("button", name="Kill its process").click()
            await page.locator(".lane-step").filter(has_text="parcel 4").wait_for(timeout=20_000)
            await page.mouse.move(0, 0)
            PICTURE.parent.mkdir(exist_ok=True)
            await page.screenshot(path=PICTURE)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
