"""The explorer of `make run`: the first actions of a new user work, including a crash."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.ui.conftest import OpenPage
from tests.ui.stage import made_run

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page_address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with made_run(tmp_path_factory.mktemp("run")) as address:
        yield address


async def test_recovery_from_a_crash_is_shown_live(page_address: str, open_page: OpenPage) -> None:
    page = await open_page(page_address)
    await page.get_by_role("link", name="survive a crash", exact=True).click()
    await page.get_by_role("button", name="Send").click()
    last = page.locator(".exchange").last
    await expect(last).to_contain_text(re.compile(r"Now process \d+ dies"))
    await expect(last).to_contain_text("shipped in attempt 2", timeout=20_000)
    await last.get_by_role("link").click()
    await page.get_by_role("tab", name="Waterfall").click()
    await expect(page.locator("main")).to_contain_text("2 attempts in 2 processes")
    packed = page.locator(".lane-step").filter(has_text="pack")
    await expect(packed).to_have_count(1)  # the step was not repeated


async def test_a_writer_is_steered_while_it_writes(page_address: str, open_page: OpenPage) -> None:
    """The form has the fields that the card declares; the task runs long enough for all actions."""
    page = await open_page(page_address)
    await page.get_by_role("link", name="write about the sea").click()
    await page.get_by_role("button", name="Send").click()
    last = page.locator(".exchange").last
    await expect(last).to_contain_text("Few people know much about the sea.")
    await last.get_by_role("link").click()
    await page.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("button", name="Redirect", exact=True)).to_have_count(0)
    await page.get_by_role("button", name="Change the topic").click()
    await dialog.get_by_role("button", name="Change the topic").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("topic has fewer than 2 characters")
    await dialog.get_by_label("Topic (required)").fill("the moon")
    await dialog.get_by_label("Reason").fill("it is night")
    await dialog.get_by_role("button", name="Change the topic").click()
    await page.get_by_role("button", name="Resume").click()
    await dialog.get_by_role("button", name="Resume").click()
    talk = page.get_by_label("Conversation", exact=True)
    await expect(talk).to_contain_text("the moon.")
    await expect(talk).to_contain_text("it is night")
    await page.get_by_role("button", name="Be brief").click()
    await dialog.get_by_role("button", name="Be brief").click()
    await expect(talk).to_contain_text("In short: the moon.")
    await expect(page.locator(".task-head .badge")).to_have_text("Completed")


async def test_its_process_is_killed_and_another_takes_over(page_address: str, open_page: OpenPage) -> None:
    """The agent's card declares the button; the dialog shows the call before it is sent."""
    page = await open_page(f"{page_address}/#/try?text=work%20through%208%20parcels")
    await page.get_by_role("button", name="Send").click()
    last = page.locator(".exchange").last
    await expect(last).to_contain_text("2 of 8, in process")
    await last.get_by_role("link").click()
    await page.get_by_role("button", name="Kill its process").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("to see what happens")
    await dialog.get_by_text("Show the call").click()
    await expect(dialog.locator(".command")).to_contain_text('"kill"')
    await dialog.get_by_role("button", name="Kill its process").click()
    await expect(page.locator("main")).to_contain_text("2 attempts in 2 processes", timeout=20_000)
    await expect(page.locator(".task-head .badge")).to_have_text("Completed", timeout=20_000)
    await page.get_by_role("tab", name="Overview").click()
    await expect(page.get_by_label("Attempts")).to_contain_text("lost")
    await expect(page.locator("main")).to_contain_text("8 parcels, each packed once, by 2 processes.")


async def test_a_turn_and_a_module_ask_for_approval(page_address: str, open_page: OpenPage) -> None:
    for name, example, expected in (
        ("Plan a trip", "plan a trip to Rome", "The train to Rome is booked."),
        ("Shop Refund", "", "12.50 paid back"),
    ):
        page = await open_page(f"{page_address}/#/try")
        await page.get_by_label("Skill", exact=True).select_option(label=name)
        if example:
            await page.get_by_label("Text", exact=True).fill(example)
        else:
            await page.get_by_label("order").fill("A-1")
            await page.get_by_label("cents").fill("1250")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("button", name="Approve").last.click()
        await expect(page.locator(".exchange").last).to_contain_text(expected)


async def test_example_data_exists_before_the_first_message(page_address: str, open_page: OpenPage) -> None:
    page = await open_page(f"{page_address}/#/tasks")
    await expect(page.locator("main")).to_contain_text("plan a trip to Lisbon")
    await expect(page.locator("main")).to_contain_text("deploy the docs")
    await page.goto(f"{page_address}/#/sessions")
    await page.get_by_role("link", name="harbour-tour", exact=True).first.click()
    await page.get_by_role("tab", name="Artifacts").click()
    await expect(page.locator("main")).to_contain_text("tides.md")
    await page.goto(f"{page_address}/#/system")
    await expect(page.locator("main")).to_contain_text("sqlite")
