"""A module that asks its user while it runs, and reports progress."""

from __future__ import annotations

from typing import Any, ClassVar

from apcore import ModuleExample
from pydantic import BaseModel

from keelbolt.apcore import elicit, report_progress

QUESTION = {
    "type": "object",
    "properties": {"size": {"type": "string", "enum": ["S", "M", "L"]}},
    "required": ["size"],
}


class Input(BaseModel):
    """The input."""

    article: str


class Output(BaseModel):
    """The output."""

    ordered: str


class Order:
    """Its id is shop.order."""

    description = "Orders an article, and asks for its size"
    tags: ClassVar = ["shop"]
    input_schema = Input
    output_schema = Output
    metadata: ClassVar = {
        "display": {"a2a": {"alias": "Order an article"}},
        "x-when-to-use": "When a customer has chosen an article",
    }
    examples: ClassVar = [ModuleExample("A shirt", {"article": "shirt"}, {"ordered": "shirt, M"})]

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        # After the answer the module runs again from here: put side effects after the question.
        await report_progress(context, 1, 2, "looking at the stock")
        answer = await elicit(context, f"Which size of {inputs['article']}?", QUESTION)
        if answer is None or answer["action"] != "accept":
            return {"ordered": "nothing"}
        await report_progress(context, 2, 2, "ordering")
        return {"ordered": f"{inputs['article']}, {(answer.get('content') or {})['size']}"}
