"""A module that streams: each chunk reaches the client when it is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from apcore import ModuleAnnotations, ModuleExample
from pydantic import BaseModel


class Input(BaseModel):
    """What it takes."""

    word: str


class Output(BaseModel):
    """What it gives, in the end."""

    letter: str


class Spell:
    """Its id is text.spell."""

    description = "Spells a word, letter by letter"
    tags: ClassVar = ["text", "streaming"]
    input_schema = Input
    output_schema = Output
    annotations = ModuleAnnotations(readonly=True, streaming=True)
    examples: ClassVar = [ModuleExample("A word", {"word": "keelbolt"}, {"letter": "t"})]

    async def execute(self, inputs: dict[str, Any], _context: Any) -> dict[str, Any]:
        return {"letter": inputs["word"][-1:]}

    async def stream(self, inputs: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        for letter in inputs["word"]:
            if context.cancel_token is not None:
                context.cancel_token.check()  # whoever cancels the task is heard here
            await asyncio.sleep(0.05)
            yield {"letter": letter}
