"""An agent of apcore modules in the explorer: badges, titles of examples, and questions of a module."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from apcore import Context, ModuleAnnotations
from apcore.module import ModuleExample
from playwright.async_api import expect

from keelbolt.apcore import ApcoreServer, elicit
from tests.integration.apcore.modules import Anything, registry_of
from tests.integration.server.serving import served
from tests.ui.conftest import OpenPage

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


class Order:
    input_schema = Anything
    output_schema = Anything
    description = "Orders a shirt"
    annotations = ModuleAnnotations(idempotent=True, destructive=True)
    examples: ClassVar[list[ModuleExample]] = [ModuleExample("A red shirt", {"colour": "red"})]
    metadata: ClassVar[dict[str, Any]] = {
        "display": {"a2a": {"alias": "Shirt shop"}},
        "x-when-to-use": "When a shirt is needed",
    }

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        answer = await elicit(context, "Which size?", SIZE)
        return {"ordered": answer["content"] if answer else None}


async def test_a_module_is_shown_called_and_answered(open_page: OpenPage) -> None:
    async with served(ApcoreServer(registry_of(order=Order()), explorer=True)) as url:
        page = await open_page(f"{url}/explorer")
        skill = page.locator("article.skill")
        await expect(skill.get_by_role("heading", name="Shirt shop")).to_be_visible()
        await expect(skill.get_by_text("When to use: When a shirt is needed")).to_be_visible()
        await expect(skill.locator(".tag.bad")).to_have_text("destructive")
        await expect(skill.get_by_text("idempotent", exact=True)).to_be_visible()
        await skill.get_by_role("link", name="A red shirt").click()
        await page.get_by_role("button", name="Send", exact=True).click()
        await page.get_by_text("Which size?").first.wait_for()
        await page.goto(f"{url}/explorer/#/tasks")
        await page.locator("table a").first.click()
        question = page.get_by_label("The question")
        await expect(question.get_by_role("button", name="decline")).to_be_visible()
        await question.get_by_label("size").fill("4")
        await question.get_by_role("button", name="Answer", exact=True).click()
        await expect(page.get_by_text("completed").first).to_be_visible()
