"""Anthropic's messages API."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from keelbolt.errors import ModelError
from keelbolt.turns.chat.http import UNFIT, ProviderEndpoint, unfit
from keelbolt.turns.chat.protocol import CallRequest, ChatMessage, Delta, ModelRequest, TextDelta, ThoughtDelta, Usage

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
OMITTED = "(Earlier messages are omitted.)"


class AnthropicModel:
    """A model behind ``POST {base_url}/v1/messages``.

        AnthropicModel("claude-sonnet-4-5", max_tokens=4096)

    Key and address come from ``ANTHROPIC_API_KEY`` and ``ANTHROPIC_BASE_URL`` unless they are given. ``options`` are
    sent with each request.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int = 4096,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 120.0,
        retries: int = 2,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self._max_tokens = max_tokens
        self._base_url = base_url
        self._api_key = api_key
        self._timeout = timeout_seconds
        self._retries = retries
        self._options = dict(options or {})

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        calls: dict[int, dict[str, str]] = {}
        usage: dict[str, Any] = {}
        ended = False
        async for event in self._endpoint().events(self._body(request)):
            try:
                delta = _read(event, calls, usage)
            except UNFIT as error:
                raise unfit(error) from error
            if delta is not None:
                yield delta
            ended = ended or event.get("type") == "message_stop"
        if not ended:
            raise ModelError("the model's response ended early")

    def _endpoint(self) -> ProviderEndpoint:
        key = self._api_key or os.environ.get("ANTHROPIC_API_KEY")
        if not key:
            raise ModelError("no API key for the model: set ANTHROPIC_API_KEY or pass api_key=")
        base = self._base_url or os.environ.get("ANTHROPIC_BASE_URL") or BASE_URL
        headers = {"x-api-key": key, "anthropic-version": VERSION}
        return ProviderEndpoint(f"{base.rstrip('/')}/v1/messages", headers, self._timeout, self._retries)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body = {
            "model": self.model,
            "max_tokens": self._max_tokens,
            "system": request.system,
            "messages": _messages(request.messages),
            "stream": True,
            **self._options,
        }
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                for tool in request.tools
            ]
        return body


def _read(event: Mapping[str, Any], calls: dict[int, dict[str, str]], usage: dict[str, Any]) -> Delta | None:
    """Return the delta of an event, or None; pieces of calls are added to ``calls``, and of the usage to ``usage``."""
    match event.get("type"):
        case "message_start":  # has the number of input tokens
            usage.update(event["message"].get("usage") or {})
        case "content_block_start" if event["content_block"].get("type") == "tool_use":
            calls[event["index"]] = {"name": event["content_block"]["name"], "arguments": ""}
        case "content_block_start" if text := event["content_block"].get("text"):
            return TextDelta(text)
        case "content_block_delta":
            delta = event["delta"]
            if text := delta.get("text"):
                return TextDelta(text)
            if thought := delta.get("thinking"):
                return ThoughtDelta(thought)
            if "partial_json" in delta and event["index"] in calls:
                calls[event["index"]]["arguments"] += delta["partial_json"]
        case "content_block_stop" if event["index"] in calls:
            call = calls[event["index"]]
            return CallRequest(call["name"], call["arguments"] or "{}")
        case "message_delta" if found := event.get("usage"):
            usage.update(found)
            return Usage(dict(usage))
        case _:  # ping, and event types that are added later
            pass
    return None


def _messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return the messages in Anthropic's form.

    Tool results are blocks of user messages, and adjacent messages of one role are merged.
    """
    found: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if found and found[-1]["role"] == role:
            found[-1]["content"] += blocks
        elif blocks:
            found.append({"role": role, "content": blocks})
    if found and found[0]["role"] == "assistant":  # not every server accepts that
        found.insert(0, {"role": "user", "content": [{"type": "text", "text": OMITTED}]})
    return found


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}
        return [{**result, "is_error": True} if message.is_error else result]
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []  # blank text is refused
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        for call in message.calls
    ]
    return [*text, *calls]
