"""OpenAI's chat completions API, and compatible servers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from keelbolt.errors import ModelError
from keelbolt.turns.chat.http import UNFIT, ProviderEndpoint, unfit
from keelbolt.turns.chat.protocol import CallRequest, ChatMessage, Delta, ModelRequest, TextDelta, ThoughtDelta, Usage

BASE_URL = "https://api.openai.com/v1"


class OpenAIModel:
    """A model behind ``POST {base_url}/chat/completions``.

        OpenAIModel("gpt-5-mini")
        OpenAIModel("qwen3", base_url="http://localhost:11434/v1", api_key="none")

    Key and address come from ``OPENAI_API_KEY`` and ``OPENAI_BASE_URL`` unless they are given. ``options`` are sent
    with each request, for example ``{"temperature": 0}``.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 120.0,
        retries: int = 2,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self._base_url = base_url
        self._api_key = api_key
        self._timeout = timeout_seconds
        self._retries = retries
        self._options = dict(options or {})

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        calls: dict[int, dict[str, str]] = {}
        ended = False
        async for event in self._endpoint().events(self._body(request)):
            try:
                deltas, last = _read(event, calls)
            except UNFIT as error:
                raise unfit(error) from error
            for delta in deltas:
                yield delta
            ended = ended or last
        if not ended:
            raise ModelError("the model's response ended early")
        for _, call in sorted(calls.items()):
            yield CallRequest(call["name"], call["arguments"] or "{}")

    def _endpoint(self) -> ProviderEndpoint:
        key = self._api_key or os.environ.get("OPENAI_API_KEY")
        if not key:
            raise ModelError("no API key for the model: set OPENAI_API_KEY or pass api_key=")
        base = self._base_url or os.environ.get("OPENAI_BASE_URL") or BASE_URL
        return ProviderEndpoint(
            f"{base.rstrip('/')}/chat/completions", {"authorization": f"Bearer {key}"}, self._timeout, self._retries
        )

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        messages = [{"role": "system", "content": request.system}, *map(_message, request.messages)]
        body = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._options,
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
                }
                for tool in request.tools
            ]
        return body


def _read(event: Mapping[str, Any], calls: dict[int, dict[str, str]]) -> tuple[list[Delta], bool]:
    """Return the deltas of an event, and whether it ends the answer; pieces of calls are added to ``calls``."""
    found: list[Delta] = []
    ended = False
    if usage := event.get("usage"):
        found.append(Usage(usage))
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        if text := delta.get("content") or delta.get("refusal"):
            found.append(TextDelta(text))
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            found.append(ThoughtDelta(thought))
        for part in delta.get("tool_calls") or ():
            _add(calls.setdefault(part.get("index", len(calls)), {"name": "", "arguments": ""}), part)
        ended = ended or choice.get("finish_reason") is not None
    return found, ended


def _add(call: dict[str, str], part: Mapping[str, Any]) -> None:
    """Add a piece of a call: the name comes once, the arguments as they are generated."""
    function = part.get("function") or {}
    call["name"] = call["name"] or function.get("name") or ""
    call["arguments"] += function.get("arguments") or ""


def _message(message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    found: dict[str, Any] = {"role": message.role, "content": message.text or None}
    if message.calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return found
