"""What the agent says about itself, whether that is good, and who we are to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.ui.conftest import OpenPage
from tests.ui.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_card_is_shown_and_its_examples_are_one_click_from_a_try(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(f"{agent.url}/explorer")
    await expect(page.locator("h1")).to_have_text("Harbour")
    await expect(page.get_by_text("✓ Streams")).to_be_visible()
    await expect(page.get_by_text("JSONRPC 1.0")).to_be_visible()
    await page.get_by_role("link", name="count to 3").click()
    await expect(page.get_by_label("Text", exact=True)).to_have_value("count to 3")
    await expect(page.get_by_label("Skill")).to_have_value("count")


async def test_checks_have_hints_and_the_raw_card_can_be_copied(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at())
    await page.get_by_role("tab", name="Checks").click()
    await expect(page.get_by_text("All clients that follow the specification can use this card.")).to_be_visible()
    await expect(page.get_by_text("Sign the card, so that clients can verify its author.")).to_be_visible()
    await page.get_by_role("tab", name="Raw").click()
    await expect(page.locator(".raw pre")).to_contain_text('"name": "Harbour"')
    await page.get_by_role("button", name="Copy as curl").click()
    copied = await page.evaluate("() => navigator.clipboard.readText()")
    assert copied == f"curl '{agent.url}/.well-known/agent-card.json'"


async def test_a_bad_card_is_told_what_to_do(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at())
    found = await page.evaluate(
        """async () => (await import("./js/checks.js")).checkCard({
            name: "x", supportedInterfaces: [{url: "http://far.example", protocolBinding: "JSONRPC"}],
            skills: [{id: "a", name: "A", description: "a"}, {id: "a", name: "B", description: "b"}],
            securityRequirements: [{schemes: {missing: {}}}],
        }).filter(({level}) => level === "bad").map(({title}) => title)"""
    )
    for title in (
        "The card has a description",
        "Every interface has an address, a binding and a version",
        "Remote addresses use https",
        "defaultInputModes are media types",
        "Skill ids are unique",
        "Required security schemes are defined",
    ):
        assert title in found


async def test_an_operator_looks_after_others_and_answers_nothing_for_them(tmp_path: Path, open_page: OpenPage) -> None:
    async with Stage(tmp_path, "--key", "open-sesame-0123456789") as agent:
        agent.client.headers["X-API-Key"] = "open-sesame-0123456789"
        task_id = await agent.send("deploy")
        page = await open_page(agent.at())
        await page.get_by_label("Key, sent as X-API-Key").fill("open-sesame-0123456789-operator")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator("#who")).to_have_text("olga (operator)")
        await page.goto(agent.at("tasks"))
        await expect(page.get_by_text("No tasks yet")).to_be_visible()
        await page.get_by_label("Owner", exact=True).select_option("Everyone")
        await expect(page.locator("td.wide").filter(has_text="alice")).to_be_visible()
        await page.locator("td.said a").click()
        assert page.url.endswith(f"#/tasks/{task_id}?owner=alice")
        await page.go_back()
        await page.get_by_label("Owner", exact=True).select_option("alice")
        await page.locator("td.said a").click()
        assert page.url.endswith(f"#/tasks/{task_id}?owner=alice")
        await expect(page.locator(".question")).to_contain_text("Only the owner of the task can answer.")
        await page.get_by_role("button", name="Cancel").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("closing time")
        await dialog.get_by_role("button", name="Cancel the task").click()
        await expect(page.locator(".task-head .badge")).to_have_text("Canceled")
        steered = [entry["data"] for entry in await agent.log(task_id) if entry["kind"] == "steer"]
        assert [(each["source"], each["reason"]) for each in steered] == [("olga", "closing time")]


async def test_a_token_is_for_the_tab_alone_and_stays_out_of_commands(tmp_path: Path, open_page: OpenPage) -> None:
    async with Stage(tmp_path, "--key", "open-sesame-0123456789") as agent:
        page = await open_page(agent.at())
        await expect(page.locator("#who")).to_have_text("not signed in")
        await page.goto(agent.at("tasks"))
        await expect(page.locator("h1")).to_have_text("Sign in to Harbour")
        await page.get_by_label("Key, sent as X-API-Key").fill("wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("The agent refused the credentials")
        await page.get_by_label("Key, sent as X-API-Key").fill("open-sesame-0123456789")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator("#who")).to_have_text("alice")
        await expect(page.get_by_text("No tasks yet")).to_be_visible()  # the view that was asked for
        await page.get_by_role("button", name="Calls").click()
        await expect(page.locator("pre.command")).to_contain_text('-H "X-API-Key: $TOKEN"')
        assert "open-sesame-0123456789" not in await page.content()
        other = await page.context.new_page()
        await other.goto(agent.at())
        await expect(other.locator("#who")).to_have_text("not signed in")
        await page.goto(agent.at())
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.locator("#who")).to_have_text("not signed in")
