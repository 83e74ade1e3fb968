"""The System page: live numbers, the last hours, processes, failing webhooks, storage details."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from playwright.async_api import expect
from pydantic_core import to_json

from keelbolt.data.erasing import PARTITION
from keelbolt.kernel import Put, open_storage
from keelbolt.observability.metrics import DURATION_BOUNDS
from keelbolt.tasks.statistics import BUCKET_SECONDS, COLLECTION, VITALS
from tests.ui.conftest import OpenPage
from tests.ui.stage import PREFIX, Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

PICTURES = os.environ.get("KEELBOLT_PICTURES")  # a folder for screenshots


async def past(folder: Path) -> None:
    """Statistics of two processes over five hours, and of a process that died."""
    now = int(time.time()) // BUCKET_SECONDS * BUCKET_SECONDS
    async with open_storage(f"sqlite:///{folder}/agent.db", declare=[COLLECTION]) as kernel:
        for number in range(1, 60):
            for process in ("one:1:a", "two:2:b"):
                counts = [0] * (len(DURATION_BOUNDS) + 1)
                counts[6 + number % 4], counts[10] = 40 + number, 4
                body = {"seen": now, "ended": sum(counts), "failed": number % 7, "seconds": counts}
                body |= {"oldest": number % 9, "waiting": number % 20, "held": 5, "dead": number // 20}
                at = now - number * BUCKET_SECONDS
                await kernel.commit(PARTITION, Put(VITALS, f"{at}/{process}", to_json(body), {"at": at}, 3600.0))
        await kernel.heartbeat("elsewhere:4711:gone", lease_seconds=0.001)


async def test_the_system_is_shown_to_its_operator(tmp_path: Path, open_page: OpenPage) -> None:
    async with Stage(tmp_path) as agent:
        await past(tmp_path)
        await agent.send("say something")
        page = await open_page(agent.at("system"))
        main = page.locator("main")
        await expect(page.get_by_text("Reads and writes work", exact=True)).to_be_visible()
        await expect(main).to_contain_text("sqlite")
        await expect(main).to_contain_text("30 d")
        plots = page.locator(".plot")
        await expect(plots).to_have_count(5)
        label = "Tasks ended per minute, at most 41.2"
        await expect(plots.first.get_by_role("img")).to_have_attribute("aria-label", label)
        line = await plots.first.locator("path").first.get_attribute("d")
        assert line is not None
        assert line.count("L") >= 55
        processes = page.locator(".card").filter(has=page.get_by_role("heading", name="Processes"))
        await expect(processes.locator("li").filter(has_text="this process")).to_contain_text("holds 0")
        await expect(processes.locator("li").filter(has_text="process 4711")).to_contain_text("lease expired")
        table = page.get_by_role("table", name="Records")
        await expect(table).not_to_be_visible()
        await page.get_by_text("Storage details").click()
        await expect(table).to_contain_text("system_vitals")
        await page.get_by_label("Hours").select_option("1")
        await expect(plots.first.locator("path").first).not_to_have_attribute("d", line)
        running = page.locator(".tile").filter(has_text="Running").locator(".tile-value")
        await agent.send("listen", now=True)
        await expect(running).to_have_text("1")
        if PICTURES:
            await page.get_by_label("Hours").select_option("6")
            for width, scheme in ((1200, "light"), (1200, "dark"), (390, "light")):
                await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                await page.set_viewport_size({"width": width, "height": 900})
                await page.screenshot(path=f"{PICTURES}/system-{width}-{scheme}.png", full_page=True)


async def test_failing_webhooks_are_listed(tmp_path: Path, open_page: OpenPage) -> None:
    async with Stage(tmp_path) as agent:
        message = {"messageId": "hooked", "role": "ROLE_USER", "parts": [{"text": "say something"}]}
        config = {"taskPushNotificationConfig": {"url": "http://127.0.0.1:1/hook"}}
        await agent.client.post("/message:send", json={"message": message, "configuration": config})
        async with asyncio.timeout(20):
            failing = f"{PREFIX}/webhooks?state=failing&all=true"
            while not (await agent.client.get(failing)).json()["webhooks"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        page = await open_page(agent.at("system"))
        card = page.locator(".card").filter(has=page.get_by_role("heading", name="Failing webhooks (1)"))
        await expect(card).to_contain_text("http://127.0.0.1:1/hook")
