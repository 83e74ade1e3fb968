"""The try page: text, JSON and files; sent or streamed; requests can be inspected and copied."""

from __future__ import annotations

import json
import subprocess

import pytest
from playwright.async_api import Page, expect

from tests.ui.conftest import OpenPage
from tests.ui.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def say(page: Page, text: str, how: str = "Stream the answer") -> None:
    await page.get_by_label("Text", exact=True).fill(text)
    await page.get_by_label("How").select_option(how)
    await page.get_by_label("Text", exact=True).press("Control+Enter")


async def test_a_message_is_sent_and_its_answer_shown(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at("try"))
    await say(page, "hello there", "Wait for the answer")
    last = page.locator(".exchange").last
    await expect(last).to_contain_text("Completed")
    await expect(last).to_contain_text("You said: hello there")
    await last.get_by_text("Request", exact=True).click()
    await expect(last.locator("pre").first).to_contain_text('"method": "SendMessage"')
    await last.get_by_text("Response", exact=True).click()
    await expect(last.locator("details").last.locator("pre")).to_contain_text("TASK_STATE_COMPLETED")


async def test_an_answer_is_streamed_and_each_event_can_be_seen(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at("try"))
    await say(page, "count to 8")
    last = page.locator(".exchange").last
    await expect(last.locator(".artifact")).to_contain_text("1 2")
    await expect(last.locator(".artifact")).to_contain_text("1 2 3 4 5 6 7 8")
    await expect(last).to_contain_text("Completed")
    await last.get_by_text("Response", exact=True).click()
    events = json.loads(await last.locator("details").last.locator("pre").inner_text())
    assert sum("artifactUpdate" in event["result"] for event in events) == 8


async def test_a_form_is_built_from_the_schema_of_the_skill_and_checked(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at("try?skill=book"))
    await page.get_by_label("guests (required)").fill("30")
    await page.get_by_role("button", name="Send").click()
    problems = page.locator(".problems")
    await expect(problems).to_contain_text("guests is more than 12")
    await expect(problems).to_contain_text("city has fewer than 2 characters")
    assert await page.locator(".exchange").count() == 0
    await page.get_by_label("city (required)").fill("Turku")
    await page.get_by_label("guests (required)").fill("4")
    await page.get_by_label("diet").select_option("vegan")
    await expect(problems).to_be_hidden()
    await page.get_by_role("button", name="Send").click()
    last = page.locator(".exchange").last
    await expect(last).to_contain_text("Completed")
    await expect(last.locator(".artifact")).to_contain_text('city: "Turku"')
    await expect(last.locator(".artifact")).to_contain_text("guests: 4")


async def test_an_example_that_is_json_fills_in_the_form(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at())
    await page.get_by_role("link", name='{"city": "Oulu", "guests": 2}').click()
    await expect(page.get_by_label("city (required)")).to_have_value("Oulu")
    await expect(page.get_by_label("Text", exact=True)).to_have_value("")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".exchange .artifact")).to_contain_text("guests: 2")


async def test_likely_secrets_are_hidden_until_revealed(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at("try?skill=book"))
    await page.get_by_label("city (required)").fill("Turku")
    await page.get_by_label("guests (required)").fill("4")
    await page.get_by_role("button", name="Send").click()
    artifact = page.locator(".exchange .artifact").last
    await expect(artifact).to_contain_text("password")
    await page.get_by_text("Response", exact=True).click()
    text = await page.locator("main").inner_text()
    assert "hunter2" not in text
    assert "t0ps3cret" not in text
    await artifact.get_by_role("button", name="show").first.click()
    await expect(artifact).to_contain_text("hunter2")
    task_id = await page.locator(".exchange a").last.get_attribute("title")
    for place in ("", "?tab=waterfall", "?tab=timeline", "?tab=replay", "?tab=raw", "?event=5"):
        await page.goto(agent.at(f"tasks/{task_id}{place}"))
        await page.wait_for_timeout(150)
        assert "hunter2" not in await page.locator("main").inner_text(), place


async def test_files_are_sent_and_received(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at("try"))
    await page.locator("input[type=file]").set_input_files(
        {"name": "list.txt", "mimeType": "text/plain", "buffer": b"1234567"}
    )
    await expect(page.locator(".files")).to_contain_text("list.txt 7 bytes")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".exchange").last).to_contain_text("list.txt (7 bytes)")
    await page.get_by_role("button", name="Start a new task").click()
    await say(page, "picture")
    last = page.locator(".exchange").last
    await expect(last.locator("img[alt='pixel.png']")).to_be_visible()
    await expect(last).to_contain_text("notes.txt")
    async with page.expect_download() as download:
        await last.get_by_role("button", name="Download").last.click()
    assert (await download.value).suggested_filename == "notes.txt"


async def test_a_question_is_answered_where_it_is_asked(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at("try"))
    await say(page, "deploy")
    await expect(page.locator(".exchange").last).to_contain_text("Approve the deployment to production?")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator(".exchange").last).to_contain_text("Deployed.")
    await expect(page.locator(".going")).to_contain_text("A new task in the same conversation")
    first, second = await page.locator(".exchange .theirs a").all_inner_texts()
    assert first == second == "deploy"
    await page.goto(agent.at("tasks"))
    await page.goto(agent.at("try"))
    await expect(page.locator(".exchange")).to_have_count(2)  # the conversation stays while the tab is open


async def test_every_message_starts_a_task(agent: Stage, open_page: OpenPage) -> None:
    """A message to the agent does not go to a running or waiting task."""
    page = await open_page(agent.at("try"))
    await say(page, "listen")
    last = page.locator(".exchange").last
    await expect(last).to_contain_text("Working")
    await say(page, "deploy")
    await expect(last).to_contain_text("Needs input")
    await page.get_by_role("button", name="count to 3").click()
    await page.get_by_role("button", name="Send").click()
    await expect(last).to_contain_text("Completed")
    await page.get_by_label("Skill").select_option("Count")
    await say(page, "hello")
    await expect(last).to_contain_text("You said: hello")
    ids = [await each.get_attribute("title") for each in await page.locator(".exchange .theirs a").all()]
    assert len(set(ids)) == 4
    await page.goto(agent.at(f"try?task={ids[1]}"))  # the URL selects this task
    await expect(page.locator(".going")).to_contain_text("Continues task")
    await page.get_by_label("Skill").select_option("Count")  # choosing a skill clears the selected task
    await expect(page.locator(".going")).not_to_contain_text("Continues task")


async def test_a_message_is_copied_as_a_working_curl_command(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at("try"))
    await page.get_by_label("Text", exact=True).fill('it\'s "quoted" $HOME')
    await page.get_by_label("How").select_option("Wait for the answer")
    await page.get_by_role("button", name="Copy as curl").click()
    command = await page.evaluate("() => navigator.clipboard.readText()")
    answer = subprocess.run(["sh", "-c", f"{command} -s"], capture_output=True, text=True, check=True).stdout
    assert json.loads(answer)["result"]["task"]["artifacts"][0]["parts"] == [{"text": 'You said: it\'s "quoted" $HOME'}]
    await page.get_by_role("button", name="Python").click()
    program = await page.evaluate("() => navigator.clipboard.readText()")
    answer = subprocess.run(["python3", "-c", program], capture_output=True, text=True, check=True).stdout
    assert json.loads(answer)["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_refusal_is_shown_with_the_agents_message(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at("try?task=unknown"))
    await say(page, "hello")
    await expect(page.get_by_role("alert").last).to_contain_text("Request failed.")
    await page.get_by_role("button", name="Clear").click()
    await expect(page.get_by_text("No messages yet")).to_be_visible()
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_text("Enter a text, or add JSON or a file.")).to_be_visible()
