"""Servers that stop, die and come back, and networks that break: the page says so, and goes on by itself."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.ui.conftest import OpenPage
from tests.ui.stage import PREFIX, Stage
from tests.ui.test_safety import check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_approval_is_given_after_a_restart_in_the_middle(own_agent: Stage, open_page: OpenPage) -> None:
    agent = own_agent
    task_id = await agent.send("deploy")
    page = await open_page(agent.at(f"tasks/{task_id}"))
    await expect(page.locator("#connection")).to_have_text("Live")
    await agent.stop()
    await expect(page.locator("#connection")).to_have_text("Connection lost, reconnecting…")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("alert")).to_contain_text("The agent can't be reached.")
    await agent.start()
    await expect(page.locator("#connection")).to_contain_text("Reconnected", timeout=15_000)
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator(".task-head .badge")).to_have_text("Completed")
    await page.get_by_role("tab", name="Waterfall").click()
    await expect(page.locator(".waterfall")).to_contain_text("Waiting for an answer")
    await expect(page.locator("main")).to_contain_text("2 attempts in 2 processes")


async def test_a_killed_worker_is_taken_over_while_one_looks(own_agent: Stage, open_page: OpenPage) -> None:
    agent = own_agent
    task_id = await agent.send("say the page is open")
    page = await open_page(agent.at("try"))
    await page.get_by_label("Text", exact=True).fill("die")
    await page.get_by_role("button", name="Send").click()
    await agent.gone()
    await agent.start()
    last = page.locator(".exchange").last
    await expect(last).to_contain_text("Alive again.", timeout=20_000)
    await last.get_by_role("link").click()
    await page.get_by_role("tab", name="Waterfall").click()
    waterfall = page.locator(".waterfall")
    await expect(waterfall).to_contain_text("Turn 1, attempt 1")
    await expect(waterfall).to_contain_text("taken over")
    await expect(waterfall).to_contain_text("Turn 1, attempt 2")
    await expect(page.locator("main")).to_contain_text("2 attempts in 2 processes")
    assert task_id not in page.url


async def test_a_step_in_doubt_is_loud_and_answered(own_agent: Stage, open_page: OpenPage) -> None:
    agent = own_agent
    page = await open_page(agent.at("try"))
    await page.get_by_label("Text", exact=True).fill("die doubt")
    await page.get_by_role("button", name="Send").click()
    await agent.gone()
    await agent.start()
    last = page.locator(".exchange").last
    await expect(last).to_contain_text("Needs input", timeout=20_000)
    await last.get_by_role("link").click()
    await expect(page.get_by_role("heading", name="A step is in doubt")).to_be_visible()
    await expect(page.locator(".notice.bad").first).to_contain_text("pay")
    await page.get_by_role("button", name="It took effect").click()
    await expect(page.locator(".task-head .badge")).to_have_text("Completed", timeout=15_000)
    entries = await agent.log(page.url.partition("/tasks/")[2].partition("?")[0])
    assert [entry["data"]["state"] for entry in entries if entry["kind"] == "step"] == ["started", "asked", "done"]


async def test_a_dead_letter_is_told_and_requeued(tmp_path: Path, open_page: OpenPage) -> None:
    async with Stage(tmp_path, "--attempts", "1") as agent:
        task_id = await agent.send("die", now=True)
        await agent.gone()
        await agent.start()
        page = await open_page(agent.at("system"))
        letters = page.locator(".letters")
        await expect(letters).to_contain_text("Dead letters (1)", timeout=15_000)
        await expect(page.locator(".tile").filter(has_text="Dead letters").locator(".tile-value")).to_have_text("1")
        await letters.get_by_role("button", name="Requeue").click()
        await page.get_by_role("dialog").get_by_role("button", name="Requeue", exact=True).click()
        await agent.gone()  # the new task does the same
        await agent.start()
        dead = (await agent.client.get(f"{PREFIX}/dead")).json()["dead"]
        assert task_id not in [letter["taskId"] for letter in dead]
        assert (await agent.show(task_id))["task"]["status"]["state"] == "TASK_STATE_FAILED"


async def test_a_tab_that_nobody_sees_gives_its_connection_back(agent: Stage, open_page: OpenPage) -> None:
    """Browsers have six connections for all tabs of an origin: a seventh tab must not wait for ever."""
    page = await open_page(agent.at("agent"))
    await page.clock.install()
    await page.goto(agent.at("tasks"))
    await expect(page.locator("#connection")).to_have_text("Live")
    look = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); %s }"
    look %= "document.dispatchEvent(new Event('visibilitychange'))"
    await page.evaluate(look, True)
    await page.clock.fast_forward(21_000)
    await expect(page.locator("#connection")).to_have_text("Paused while hidden")
    await agent.send("deploy unseen")
    await page.evaluate(look, False)
    await expect(page.locator("#connection")).to_have_text("Live")
    await expect(page.locator("table.tasks")).to_contain_text("deploy unseen")


async def test_offline_is_said_and_nothing_is_missed(own_agent: Stage, open_page: OpenPage) -> None:
    agent = own_agent
    task_id = await agent.send("listen", now=True)
    page = await open_page(agent.at(f"tasks/{task_id}?tab=timeline"))
    await expect(page.locator("#connection")).to_have_text("Live")
    await agent.stop(signal.SIGKILL)
    await page.context.set_offline(True)
    await expect(page.locator("#connection")).to_have_text("Connection lost, reconnecting…")
    await agent.start()
    for word in ("one", "two", "three"):
        await agent.client.post(f"{PREFIX}/tasks/{task_id}/steer", json={"kind": "inject", "payload": {"text": word}})
    await page.context.set_offline(False)
    await expect(page.locator(".vrow").filter(has_text="three")).to_have_count(1, timeout=20_000)
    shown = [int(text) for text in await page.locator(".vrow .seq").all_inner_texts()]
    assert shown == list(range(1, len(shown) + 1))


async def test_a_silent_process_is_counted_down_and_the_next_one_named(tmp_path: Path, open_page: OpenPage) -> None:
    """A process that is stopped (not killed: SQLite would notice) renews no lease; another one takes over."""
    async with Stage(tmp_path, "--lease", "4") as agent:
        task_id = await agent.send("listen", now=True)
        second = Stage(tmp_path, "--lease", "4")  # the same storage, another process
        async with second:
            page = await open_page(second.at(f"tasks/{task_id}"), bypass_csp=True)
            await expect(page.get_by_text("Runs in")).to_be_visible()
            assert agent.child is not None
            held = f"process {agent.child.pid} on"
            await expect(page.get_by_label("Progress")).to_contain_text(held)
            await expect(page.locator(".countdown")).to_have_count(0)
            agent.child.send_signal(signal.SIGSTOP)
            try:
                countdown = page.locator(".countdown")
                await expect(countdown).to_contain_text(
                    re.compile(rf"{held} \S+ has sent no heartbeat for \d\.\d s", re.IGNORECASE)
                )
                await expect(page.locator("#connection")).to_have_text("No heartbeats")
                await expect(countdown).to_contain_text(re.compile(r"takes over in \d\.\d s|Its lease has expired"))
                assert second.child is not None
                took = re.compile(
                    rf"Process {second.child.pid} on \S+ took over, \d\.\d s after {held} \S+ stopped sending heartbeats"
                )
                await expect(page.locator(".notice.busy")).to_contain_text(took, timeout=20_000)
                await expect(page.locator("#connection")).to_have_text("Live")
                await expect(page.get_by_label("Attempts")).to_contain_text("took over")
                assert not await check(page)
            finally:
                agent.child.send_signal(signal.SIGCONT)
