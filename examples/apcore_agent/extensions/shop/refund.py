"""A module that requires approval."""

from __future__ import annotations

from typing import Any, ClassVar

from apcore import Change, ModuleAnnotations, ModuleExample, PreviewResult
from pydantic import BaseModel, Field


class Input(BaseModel):
    """The input."""

    order: str
    cents: int = Field(gt=0)


class Output(BaseModel):
    """The output."""

    receipt: str


class Refund:
    """Its id is shop.refund."""

    description = "Pays money back for an order"
    tags: ClassVar = ["shop"]
    input_schema = Input
    output_schema = Output
    annotations = ModuleAnnotations(destructive=True, requires_approval=True)
    examples: ClassVar = [
        ModuleExample("A refund", {"order": "A-17", "cents": 1250}, {"receipt": "A-17: 12.50 paid back"})
    ]

    def preview(self, inputs: dict[str, Any], _context: Any) -> PreviewResult:
        """Return the planned change, which the approval request shows."""
        summary = f"Pays {inputs['cents'] / 100:.2f} back for {inputs['order']}"
        return PreviewResult(changes=[Change(action="pay", target=inputs["order"], summary=summary)])

    def execute(self, inputs: dict[str, Any], _context: Any) -> dict[str, Any]:
        return {"receipt": f"{inputs['order']}: {inputs['cents'] / 100:.2f} paid back"}
