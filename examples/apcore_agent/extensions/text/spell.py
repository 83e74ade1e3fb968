"""A module that streams: each chunk is sent to the client when it is yielded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from apcore import ModuleAnnotations, ModuleExample
from pydantic import BaseModel


class Input(BaseModel):
    """The input."""

    word: str


class Output(BaseModel):
    """The final output."""

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
                context.cancel_token.check()  # raises if the task is canceled
            await asyncio.sleep(0.05)
            yield {"letter": letter}
