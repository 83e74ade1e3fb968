"""A model for the OpenAI Agents SDK without a network: it calls the tool `order`, then returns a scripted text."""

from __future__ import annotations

from typing import Any

from agents import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from examples.workers.outside import ANSWER, words


class _Scripted(Model):
    async def get_response(self, *_args: Any, **_options: Any) -> Any:
        raise NotImplementedError

    async def stream_response(  # type: ignore[override]  # only one argument is needed
        self, _instructions: Any, given: Any, *_args: Any, **_options: Any
    ) -> Any:
        if isinstance(given, str) or len(given) == 1:
            call: Any = {"arguments": '{"item": "a kettle"}', "call_id": "call-1", "name": "order"}
            yield _completed(ResponseFunctionToolCall(type="function_call", **call))
            return
        at: Any = {"item_id": "m", "output_index": 0, "content_index": 0, "sequence_number": 0, "logprobs": []}
        async for word in words():
            yield ResponseTextDeltaEvent(type="response.output_text.delta", delta=word, **at)
        text = ResponseOutputText(type="output_text", text=f"{ANSWER} ", annotations=[], logprobs=[])
        yield _completed(
            ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        )


def _completed(item: Any) -> Any:
    fixed: Any = {"id": "r", "created_at": 0, "model": "scripted", "object": "response", "tools": []}
    response = Response(output=[item], tool_choice="auto", parallel_tool_calls=False, **fixed)
    return ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


model = _Scripted()
