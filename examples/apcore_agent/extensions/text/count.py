"""A plain module: an object in, an object out."""

from __future__ import annotations

from typing import Any, ClassVar

from apcore import ModuleAnnotations, ModuleExample
from pydantic import BaseModel, Field


class Input(BaseModel):
    """The input."""

    text: str = Field(description="The text whose words are counted")


class Output(BaseModel):
    """The output."""

    words: int
    characters: int


class Count:
    """Its id is text.count, from the path of this file."""

    description = "Counts the words and characters of a text"
    tags: ClassVar = ["text"]
    input_schema = Input
    output_schema = Output
    annotations = ModuleAnnotations(readonly=True, idempotent=True)
    examples: ClassVar = [ModuleExample("A sentence", {"text": "to be or not to be"}, {"words": 6, "characters": 18})]

    def execute(self, inputs: dict[str, Any], _context: Any) -> dict[str, Any]:
        text = inputs["text"]
        return {"words": len(text.split()), "characters": len(text)}
