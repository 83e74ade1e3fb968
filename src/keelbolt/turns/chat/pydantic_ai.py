"""Models of pydantic-ai, for every provider that it supports. Needs the extra ``pydantic-ai``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from keelbolt.errors import MissingExtra, ModelError
from keelbolt.turns.chat.protocol import CallRequest, ChatMessage, Delta, ModelRequest, TextDelta, ThoughtDelta, Usage


class PydanticAIModel:
    """Runs a pydantic-ai model: an object, an agent that has one, or a name such as ``"openai:gpt-5-mini"``.

    Only the model of an agent is used: tools and instructions are those of the chat executor.
    """

    def __init__(self, model: Any) -> None:
        try:
            from pydantic_ai.models import infer_model  # noqa: PLC0415 - an extra
        except ImportError as missing:
            raise MissingExtra("pydantic-ai", "pydantic_ai") from missing
        found = getattr(model, "model", model) if not isinstance(model, str) else model
        self._model = infer_model(found)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Generate once. Errors of pydantic-ai become ModelError; retries and timeouts are those of its provider."""
        from pydantic_ai.exceptions import AgentRunError, UserError  # noqa: PLC0415

        try:
            async with aclosing(self._generated(request)) as deltas:
                async for delta in deltas:
                    yield delta
        except (AgentRunError, UserError) as error:
            raise ModelError(f"the model failed: {error}"[:500]) from error

    async def _generated(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        from pydantic_ai import messages as said  # noqa: PLC0415
        from pydantic_ai.models import ModelRequestParameters  # noqa: PLC0415
        from pydantic_ai.tools import ToolDefinition  # noqa: PLC0415

        tools = [
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.schema))
            for tool in request.tools
        ]
        parameters = ModelRequestParameters(function_tools=tools)
        messages = _messages(said, request)
        async with self._model.request_stream(messages, None, parameters) as response:
            async for event in response:
                if isinstance(event, said.PartStartEvent):
                    if isinstance(event.part, said.TextPart) and event.part.content:
                        yield TextDelta(event.part.content)
                    elif isinstance(event.part, said.ThinkingPart) and event.part.content:
                        yield ThoughtDelta(event.part.content)
                elif isinstance(event, said.PartDeltaEvent):
                    if isinstance(event.delta, said.TextPartDelta) and event.delta.content_delta:
                        yield TextDelta(event.delta.content_delta)
                    elif isinstance(event.delta, said.ThinkingPartDelta) and event.delta.content_delta:
                        yield ThoughtDelta(event.delta.content_delta)
            for part in response.get().parts:
                if isinstance(part, said.ToolCallPart):
                    yield CallRequest(part.tool_name, part.args_as_json_str() or "{}")
            used = response.usage() if callable(response.usage) else response.usage
            yield Usage({"input_tokens": used.input_tokens, "output_tokens": used.output_tokens})


def _messages(said: Any, request: ModelRequest) -> list[Any]:
    """Return the conversation in pydantic-ai's form: requests (user, results) and responses alternate."""
    found: list[Any] = []
    names = {call.id: call.name for message in request.messages for call in message.calls}
    parts: list[Any] = [said.SystemPromptPart(content=request.system)]
    for message in request.messages:
        if message.role == "assistant":
            if parts:
                found.append(said.ModelRequest(parts=parts))
                parts = []
            found.append(said.ModelResponse(parts=_response(said, message)))
        elif message.role == "tool":
            name = names.get(message.call_id, "tool")
            parts.append(said.ToolReturnPart(tool_name=name, content=message.text, tool_call_id=message.call_id))
        else:
            parts.append(said.UserPromptPart(content=message.text))
    if parts:
        found.append(said.ModelRequest(parts=parts))
    return found


def _response(said: Any, message: ChatMessage) -> Sequence[Any]:
    text = [said.TextPart(content=message.text)] if message.text else []
    calls = [
        said.ToolCallPart(tool_name=call.name, args=call.arguments, tool_call_id=call.id) for call in message.calls
    ]
    return [*text, *calls]
