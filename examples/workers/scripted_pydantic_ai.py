"""A model for pydantic-ai without a network: it calls the tool `order`, then returns a scripted text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from examples.workers.outside import words


async def _stream(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
    if len(messages) == 1:
        yield {0: DeltaToolCall("order", '{"item": "a kettle"}', tool_call_id="call-1")}
        return
    async for word in words():
        yield word


model = FunctionModel(stream_function=_stream)
