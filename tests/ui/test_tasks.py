"""The list of tasks: filters in the URL, paging and live updates."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.ui.conftest import OpenPage
from tests.ui.stage import PREFIX, Stage
from tests.ui.test_safety import check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_filters_are_in_the_address_and_lead_back(own_agent: Stage, open_page: OpenPage) -> None:
    agent = own_agent
    blue_task = await agent.send("say blue whale", contextId="sea")
    await agent.send("fail now", contextId="land")
    await agent.send("deploy", contextId="land")
    page = await open_page(agent.at("tasks"))
    rows = page.locator("table.tasks tbody tr")
    await expect(rows).to_have_count(3)
    await page.get_by_role("button", name="Failed 1").click()
    await expect(rows).to_have_count(1)
    assert page.url.endswith("#/tasks?state=failed")
    await page.get_by_role("button", name="All 3").click()
    await page.get_by_label("Context").fill("land")
    await expect(rows).to_have_count(2)
    await page.get_by_label("Context").fill("")
    await page.get_by_label("Search").fill("WHALE")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("say blue whale")
    address = page.url
    assert address.endswith("#/tasks?text=WHALE")
    again = await open_page(address)
    await expect(again.get_by_label("Search")).to_have_value("WHALE")
    await expect(again.locator("table.tasks tbody tr")).to_have_count(1)
    await again.locator("table.tasks tbody td.said a").click()
    assert again.url.endswith(f"#/tasks/{blue_task}")
    await again.go_back()
    await expect(again.get_by_label("Search")).to_have_value("WHALE")
    await again.goto(agent.at("tasks?text=nothing-like-this"))
    await expect(again.get_by_text("No matching tasks")).to_be_visible()


async def test_more_pages_are_loaded_and_changes_appear_live(own_agent: Stage, open_page: OpenPage) -> None:
    agent = own_agent
    for number in range(52):
        await agent.send(f"say {number}")
    page = await open_page(agent.at("tasks"))
    rows = page.locator("table.tasks tbody tr")
    await expect(rows).to_have_count(50)
    await page.get_by_role("button", name="More").click()
    await expect(rows).to_have_count(52)
    await expect(page.locator("#connection")).to_have_text("Live")
    task_id = await agent.send("deploy")
    await expect(rows.first).to_contain_text("deploy")
    await expect(page.get_by_role("button", name="Needs input 1")).to_be_visible()
    await expect(page.get_by_text("53 tasks")).to_be_visible()
    await agent.send("approve", taskId=task_id)
    await expect(rows.first).to_contain_text("Completed")
    await expect(rows).to_have_count(53)
    await expect(page.get_by_role("button", name="Completed 53")).to_be_visible()
    await page.get_by_role("button", name="Changed").click()  # the oldest of all pages are first
    await expect(rows).to_have_count(50)
    await expect(rows.first.locator("td.said a")).to_have_text("say 0")
    assert page.url.endswith("#/tasks?sort=changed")
    await agent.send("say new")
    await expect(page.get_by_text("54 tasks")).to_be_visible()
    await expect(rows).to_have_count(50)
    await page.get_by_role("button", name="More").click()
    await expect(rows.last.locator("td.said a")).to_have_text("say new")


async def test_a_click_counts_while_the_list_changes(own_agent: Stage, open_page: OpenPage) -> None:
    """A change of the list between the press and the release of the button must not move or replace the target."""
    agent = own_agent
    task_id = await agent.send("deploy")
    page = await open_page(agent.at("tasks"))
    await expect(page.locator("#connection")).to_have_text("Live")
    await page.locator("table.tasks td.said a").first.hover()
    await page.mouse.down()
    await agent.send("approve", taskId=task_id)
    await agent.send("say new")
    await page.wait_for_timeout(1500)
    await page.mouse.up()
    await page.wait_for_url(f"**/#/tasks/{task_id}")
    await page.go_back()
    await expect(page.locator("table.tasks tbody tr")).to_have_count(2)


async def test_a_view_is_saved_and_sorted(own_agent: Stage, open_page: OpenPage) -> None:
    agent = own_agent
    for text in ("say b", "say a", "fail c"):
        await agent.send(text)
    page = await open_page(agent.at("tasks"))
    names = page.locator("table.tasks td.said a")
    await expect(names).to_have_text(["fail c", "say a", "say b"])
    await page.get_by_role("button", name="Task", exact=True).click()
    await expect(names).to_have_text(["fail c", "say a", "say b"])
    await page.get_by_role("button", name="Task", exact=True).press("Enter")  # the button kept the focus
    await expect(names).to_have_text(["say b", "say a", "fail c"])
    await page.get_by_role("button", name="Completed 2").click()
    await page.get_by_label("Changed", exact=True).select_option("Last hour")
    await expect(names).to_have_text(["say b", "say a"])
    assert page.url.endswith("#/tasks?sort=-said&state=completed&within=3600")
    await page.get_by_role("button", name="Save this view").click()
    await page.get_by_label("Name").fill("Good ones")
    await page.get_by_role("button", name="Save", exact=True).click()
    await page.goto(agent.at("tasks"))
    await expect(names).to_have_count(3)
    await page.get_by_role("link", name="Good ones").click()
    await expect(names).to_have_text(["say b", "say a"])
    await expect(page.get_by_label("Changed", exact=True)).to_have_value("3600")
    await page.get_by_role("button", name="Remove “Good ones”").click()
    await expect(page.get_by_role("link", name="Good ones")).to_have_count(0)


async def test_several_tasks_are_canceled_retried_and_erased(own_agent: Stage, open_page: OpenPage) -> None:
    agent = own_agent
    running = [await agent.send("listen", now=True) for _ in range(2)]
    failed = await agent.send("fail now")
    for number in range(55):
        await agent.send(f"say {number}")
    page = await open_page(agent.at("tasks?state=working"), bypass_csp=True)
    rows = page.locator("table.tasks tbody tr")
    await expect(rows).to_have_count(2)
    await page.get_by_label("Select all shown").check()
    assert not await check(page)
    await page.get_by_role("button", name="Cancel 2").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("closing time")
    await dialog.get_by_role("button", name="Cancel 2 tasks").click()
    await expect(page.get_by_text("No matching tasks")).to_be_visible()
    for task_id in running:
        assert (await agent.show(task_id))["task"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert any(entry["data"].get("reason") == "closing time" for entry in await agent.log(task_id))
    await page.get_by_role("button", name="Failed 1").click()
    await page.get_by_label("Select fail now").check()
    await page.get_by_role("button", name="Retry 1").click()
    await dialog.get_by_role("button", name="Retry 1 task").click()
    await expect(rows).to_have_count(2)
    await page.goto(agent.at("tasks?state=completed"))
    await expect(rows).to_have_count(50)
    await page.get_by_label("Select all shown").check()
    await page.get_by_role("button", name="Select all 55 matches").click()
    await page.get_by_role("button", name="Erase 55").click()
    await dialog.get_by_role("button", name="Erase 55 tasks").click()
    await expect(page.get_by_text("No matching tasks")).to_be_visible(timeout=20_000)
    assert (await agent.show(failed))["task"]["id"] == failed  # other tasks stay
    total = (await agent.client.get(f"{PREFIX}/tasks")).json()["total"]
    assert total == 4


async def test_going_back_restores_the_position(own_agent: Stage, open_page: OpenPage) -> None:
    agent = own_agent
    for number in range(70):
        await agent.send(f"say {number}")
    page = await open_page(agent.at("tasks?text=say"))
    rows = page.locator("table.tasks tbody tr")
    await expect(rows).to_have_count(50)
    await page.get_by_role("button", name="Search older tasks").click()
    await expect(rows).to_have_count(70)
    await page.get_by_role("link", name="say 3", exact=True).click()
    await expect(page.locator("h1")).to_have_text("say 3")
    await page.go_back()
    await expect(rows).to_have_count(70)
    await expect(page.get_by_role("link", name="say 3", exact=True)).to_be_in_viewport()
    await page.get_by_role("link", name="Tasks").click()  # a link, not the back button: from the top
    await expect(rows).to_have_count(50)
    assert await page.evaluate("() => scrollY") == 0


async def test_the_keyboard_is_enough(own_agent: Stage, open_page: OpenPage) -> None:
    agent = own_agent
    await agent.send("say first")
    task_id = await agent.send("deploy")
    page = await open_page(agent.at("agent"))
    await page.keyboard.press("3")
    await expect(page.locator("table.tasks tbody tr")).to_have_count(2)
    await page.keyboard.press("/")
    await page.keyboard.type("deploy")
    await expect(page.locator("table.tasks tbody tr")).to_have_count(1)
    await page.keyboard.press("Tab")
    await page.keyboard.press("Escape")
    await page.locator("h1").click()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("deploy")
    assert page.url.endswith(task_id)
    approve = page.get_by_role("button", name="Approve")
    for _ in range(30):
        await page.keyboard.press("Tab")
        if await approve.evaluate("element => element === document.activeElement"):
            break
    await page.keyboard.press("Enter")
    await expect(page.locator(".task-head .badge")).to_have_text("Completed")


async def test_an_empty_list_links_to_the_try_page(own_agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(own_agent.at("tasks"))
    await expect(page.get_by_text("No tasks yet")).to_be_visible()
    await page.get_by_role("link", name="Try the agent").click()
    await expect(page.locator("h1")).to_have_text("Try")
    await page.goto(own_agent.at("nowhere"))
    await expect(page.get_by_text("Page not found")).to_be_visible()
