"""A module of another agent, which the shop calls."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel

from keelbolt.apcore import elicit

QUESTION = {
    "type": "object",
    "properties": {"service": {"type": "string", "enum": ["express", "standard"]}},
    "required": ["service"],
}


class Input(BaseModel):
    """The input."""

    parcel: str


class Output(BaseModel):
    """The output."""

    tracking: str


class Send:
    """Its id is parcel.send."""

    description = "Sends a parcel, and asks how"
    tags: ClassVar = ["parcel"]
    input_schema = Input
    output_schema = Output

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        answer = await elicit(context, "Express or standard?", QUESTION)
        service = (answer.get("content") or {}).get("service") if answer else None
        return {"tracking": f"{inputs['parcel']}/{service or 'standard'}"}
