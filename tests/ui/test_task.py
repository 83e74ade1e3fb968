"""The page of one task: its history, with a URL for each entry, and its actions."""

from __future__ import annotations

import asyncio
import re
import urllib.parse
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.integration.tasks.stage import until
from tests.integration.webhooks.receiver import fine, receiving
from tests.ui.conftest import OpenPage
from tests.ui.stage import PREFIX, Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def act(page: Page, button: str, submit: str, **fields: str) -> None:
    """Perform an action on the task through the page."""
    await page.get_by_role("group", name="Actions").get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    for label, value in fields.items():
        await dialog.get_by_label(label.replace("_", " ")).fill(value)
    await dialog.get_by_role("button", name=submit, exact=True).click()
    await expect(dialog).to_be_hidden()


async def test_the_timeline_is_live_and_every_entry_has_an_address(agent: Stage, open_page: OpenPage) -> None:
    task_id = await agent.send("listen", now=True)
    page = await open_page(agent.at(f"tasks/{task_id}?tab=timeline"))
    rows = page.locator(".vrow")
    await expect(rows).to_have_count(4)
    await expect(page.locator("#connection")).to_have_text("Live")
    await agent.client.post(f"{PREFIX}/tasks/{task_id}/steer", json={"kind": "inject", "payload": {"text": "ahoy"}})
    await expect(rows.filter(has_text="received inject")).to_contain_text("ahoy")
    await rows.filter(has_text="by process").click()
    await expect(page.locator(".detail")).to_contain_text("Attempt")
    address = page.url
    assert re.search(r"event=\d+", address)
    again = await open_page(address)
    await expect(again.locator(".detail h3")).to_have_text("#3 Attempt")
    await expect(again.locator(".vrow[aria-selected=true]")).to_contain_text("Attempt 1 of turn 1")
    await again.locator(".virtual").focus()
    await again.keyboard.press("ArrowUp")
    await expect(again.locator(".detail h3")).to_have_text("#2 Status")
    await again.get_by_label("Kind of entry").select_option("steer")
    await expect(again.locator(".vrow")).to_have_count(1)
    await act(page, "Cancel", "Cancel the task")
    await expect(page.locator(".task-head .badge")).to_have_text("Canceled")


async def test_a_task_is_steered_and_the_log_stores_the_reasons(agent: Stage, open_page: OpenPage) -> None:
    task_id = await agent.send("listen", now=True)
    page = await open_page(agent.at(f"tasks/{task_id}?tab=timeline"))
    await act(page, "Pause", "Pause", Reason="lunch")
    await expect(page.locator(".vrow").filter(has_text="received pause: lunch")).to_be_visible()
    await act(page, "Resume", "Resume", Reason="back")
    await act(page, "Inject", "Inject", Message="more salt", Reason="taste")
    await act(page, "Prioritise", "Prioritise", Priority="7", Reason="hurry")
    await act(page, "Redirect", "Redirect", New_instructions="sweets", Reason="elsewhere")
    await expect(page.locator(".task-head .badge")).to_have_text("Completed")
    steered = [entry["data"] for entry in await agent.log(task_id) if entry["kind"] == "steer"]
    assert [(each["kind"], each["reason"]) for each in steered] == [
        ("pause", "lunch"),
        ("resume", "back"),
        ("inject", "taste"),
        ("prioritise", "hurry"),
        ("redirect", "elsewhere"),
    ]
    assert steered[2]["payload"] == {"text": "more salt"}
    assert steered[3]["payload"] == {"priority": 7}
    assert steered[4]["payload"] == {"text": "sweets"}


async def test_every_action_shows_its_call(agent: Stage, open_page: OpenPage) -> None:
    task_id = await agent.send("listen", now=True)
    page = await open_page(agent.at(f"tasks/{task_id}"))
    await page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("it's over")
    await dialog.get_by_text("Show the call").click()
    command = await dialog.locator("pre.command").inner_text()
    process = await asyncio.create_subprocess_shell(f"{command} -s", stdout=asyncio.subprocess.DEVNULL)
    await process.wait()
    await dialog.get_by_role("button", name="Not now").click()
    await expect(page.locator(".task-head .badge")).to_have_text("Canceled")
    assert (
        next(entry for entry in await agent.log(task_id) if entry["kind"] == "steer")["data"]["reason"] == "it's over"
    )


@pytest.mark.parametrize(
    ("button", "state", "expected"), [("Approve", "Completed", "Deployed."), ("Reject", "Rejected", "Not")]
)
async def test_an_approval_is_given_or_refused(
    agent: Stage, open_page: OpenPage, button: str, state: str, expected: str
) -> None:
    task_id = await agent.send("deploy")
    page = await open_page(agent.at(f"tasks/{task_id}"))
    await expect(page.get_by_text("Approval required")).to_be_visible()
    foreseen = page.get_by_label("Planned changes")
    await expect(foreseen).to_contain_text("replace production: Version 1 gives way to version 2")
    await expect(foreseen).to_contain_text("It is Friday")
    await page.get_by_role("button", name=button).click()
    await expect(page.locator(".task-head .badge")).to_have_text(state)
    await expect(page.get_by_text("Approval required")).to_be_hidden()
    talk = page.get_by_label("Conversation", exact=True).locator(".bubble")
    await expect(talk.first).to_have_text("User: deploy")
    await expect(talk.nth(1)).to_contain_text("Approve the deployment to production?")
    await expect(talk.nth(2)).to_have_text(f"User: {button.lower()}")
    await expect(talk.last).to_contain_text(expected)


async def test_the_log_is_replayed_and_two_versions_are_compared(agent: Stage, open_page: OpenPage) -> None:
    task_id = await agent.send("count to 3")
    page = await open_page(agent.at(f"tasks/{task_id}?tab=replay&at=1"))
    then = page.locator("section.card").first
    await expect(then).to_contain_text("Submitted")
    await expect(then.locator(".artifact")).to_have_count(0)
    for _ in range(4):
        await page.get_by_role("button", name="Next entry").click()
    await expect(page.locator(".replay-line")).to_contain_text("#5 of 8")
    await expect(then.locator(".artifact")).to_have_text("numbers1")
    await page.get_by_role("button", name="Next entry").click()
    await expect(page.locator(".changes")).to_contain_text("artifacts.numbers.parts[0].text")
    await expect(page.locator(".changes ins")).to_have_text("2 ")
    await page.get_by_label("Compare with entry").fill("8")
    await expect(page.locator("section.card").last).to_contain_text("Changes from #6 to #8")
    await expect(page.locator(".changes")).to_contain_text("status.state")
    await expect(page.locator(".changes ins").first).to_contain_text("TASK_STATE_COMPLETED")
    assert "at=6" in page.url
    assert "with=8" in page.url
    await page.get_by_role("button", name="Play").click()
    await expect(page.locator(".replay-line")).to_contain_text("#8 of 8")
    assert len(await agent.log(task_id)) == 8  # nothing was repeated


async def test_a_task_is_forked_from_an_entry_and_requeued(agent: Stage, open_page: OpenPage) -> None:
    task_id = await agent.send("fail again")
    page = await open_page(agent.at(f"tasks/{task_id}?event=1"))
    await page.get_by_role("button", name="Fork from here").click()
    await page.get_by_role("dialog").get_by_role("button", name="Fork", exact=True).click()
    await page.wait_for_url(lambda url: task_id not in url)
    await expect(page.get_by_label("Progress").get_by_role("link", name="fail again")).to_be_visible()  # its origin
    await expect(page.locator(".bubble.failed")).to_contain_text("The engine is out of oil.")
    assert (await agent.show(page.url.rpartition("/")[2]))["task"]["metadata"]["forkedFrom"] == {
        "taskId": task_id,
        "seq": 1,
    }
    await page.goto(agent.at(f"tasks/{task_id}"))
    await act(page, "Requeue", "Requeue")
    await page.wait_for_url(lambda url: task_id not in url)
    await expect(page.locator("h1")).to_have_text("fail again")


async def test_a_webhook_is_replayed(agent: Stage, open_page: OpenPage) -> None:
    async with receiving(fine) as receiver:
        body: dict[str, Any] = {
            "message": {"messageId": "hooked", "role": "ROLE_USER", "parts": [{"text": "say it"}]},
            "configuration": {"taskPushNotificationConfig": {"url": receiver.url, "id": "mine", "token": "hidden"}},
        }
        task = (await agent.client.post("/message:send", json=body)).json()["task"]
        page = await open_page(agent.at(f"tasks/{task['id']}?tab=webhooks"))
        card = page.locator("article.card")
        await expect(card).to_contain_text(receiver.url)
        await expect(card).to_contain_text("active")
        before = receiver.seqs()
        assert before
        await card.get_by_role("button", name="Replay").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("After entry").fill("0")
        await dialog.get_by_role("button", name="Replay", exact=True).click()
        await expect(dialog).to_be_hidden()
        await until(lambda: receiver.seqs() == before + before)
        await page.reload()
        await expect(card).to_contain_text("HTTP 200")
        await page.get_by_role("tab", name="Waterfall").click()
        await expect(page.locator(".waterfall")).to_contain_text("Webhook mine")


async def test_an_erased_task_is_reported_in_other_tabs(agent: Stage, open_page: OpenPage) -> None:
    task_id = await agent.send("say goodbye")
    page = await open_page(agent.at(f"tasks/{task_id}"))
    await act(page, "Erase", "Erase permanently")
    await expect(page.locator("h1")).to_have_text("Tasks")
    await page.goto(agent.at(f"tasks/{urllib.parse.quote(task_id)}"))
    await expect(page.get_by_role("alert")).to_contain_text("Request failed.")


async def test_the_exception_of_the_worker(agent: Stage, open_page: OpenPage) -> None:
    """The operator's page shows class, message and traceback, at the head and in the timeline."""
    task_id = await agent.send("crash")
    page = await open_page(agent.at(f"tasks/{task_id}"))
    exception = page.locator("details.notice.bad")
    await expect(exception.locator("summary")).to_have_text("RuntimeError: the oven exploded, token=•••")
    await exception.locator("summary").click()
    await expect(exception.locator("pre")).to_contain_text("in crash")
    await page.get_by_role("tab", name="Timeline").click()
    await page.locator(".vrow").filter(has_text="RuntimeError").click()
    await expect(page.locator(".detail pre.traceback")).to_contain_text("in crash")
    assert "s3cr3t" not in await page.content()
