"""A module that calls another agent: its questions are passed to the user, and a cancel is passed to it."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from apcore import ModuleExample
from pydantic import BaseModel

from keelbolt.apcore import agent

CARRIER = os.environ.get("CARRIER_URL", "http://localhost:8001")


class Input(BaseModel):
    """The input."""

    order: str


class Output(BaseModel):
    """The output."""

    tracking: str


class Deliver:
    """Its id is shop.deliver."""

    description = "Sends an order to its customer, by a carrier's agent"
    tags: ClassVar = ["shop"]
    input_schema = Input
    output_schema = Output
    examples: ClassVar = [ModuleExample("An order", {"order": "A-17"}, {"tracking": "A-17/express"})]

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        answer: Any = await agent(context, CARRIER).send({"parcel": inputs["order"]}, skill_id="parcel.send")
        return {"tracking": answer.artifacts[0].parts[0].data["tracking"]}
