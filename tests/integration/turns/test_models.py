"""The provider adapters, against servers with their wire formats."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from keelbolt.errors import ModelError
from keelbolt.turns import (
    AnthropicModel,
    CallRequest,
    ChatMessage,
    Delta,
    ModelRequest,
    OpenAIModel,
    PydanticAIModel,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
    Usage,
)
from tests.integration.turns.providers import Reply, anthropic, block, openai, provider

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
REQUEST = ModelRequest(
    "Be kind.",
    [
        ChatMessage("user", "find it"),
        ChatMessage("assistant", "Let me see.", (CallRequest("search", '{"q": "x"}', "call_0"),)),
        ChatMessage("tool", "nothing", call_id="call_0", is_error=True),
        ChatMessage("user", "try again"),
    ],
    [ToolSpec("search", "Searches.", SCHEMA)],
)


async def deltas(model: Any) -> list[Delta]:
    return [delta async for delta in model.stream(REQUEST)]


async def test_openai_streams_text_thoughts_calls_and_usage() -> None:
    pieces: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "reasoning_content": "hm"},
        {"content": "He"},
        {"content": "llo"},
        {
            "tool_calls": [
                {"index": 0, "id": "call_a", "type": "function", "function": {"name": "search", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"q": '}}]},
        {"tool_calls": [{"index": 1, "id": "call_b", "function": {"name": "search", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"y"}'}}]},
    ]
    async with provider(openai(*pieces, finish="tool_calls")) as server:
        found = await deltas(OpenAIModel("m", base_url=f"{server.url}/v1", api_key="k", options={"temperature": 0}))
    assert [delta for delta in found if not isinstance(delta, Usage)] == [
        ThoughtDelta("hm"),
        TextDelta("He"),
        TextDelta("llo"),
        CallRequest("search", '{"q": "y"}'),
        CallRequest("search", "{}"),
    ]
    assert [delta.stats["total_tokens"] for delta in found if isinstance(delta, Usage)] == [5]
    ((first, headers, body),) = server.requests
    assert first == "POST /v1/chat/completions HTTP/1.1"
    assert headers["authorization"] == "Bearer k"
    assert (body["model"], body["stream"], body["temperature"]) == ("m", True, 0)
    called = {"id": "call_0", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    assert body["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "find it"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "call_0", "content": "nothing"},
        {"role": "user", "content": "try again"},
    ]
    function = {"name": "search", "description": "Searches.", "parameters": SCHEMA}
    assert body["tools"] == [{"type": "function", "function": function}]


async def test_anthropic_streams_text_thoughts_calls_and_usage() -> None:
    events = [
        *block(0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "hm"}),
        *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"}),
        *block(
            2,
            {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"q": '},
            {"type": "input_json_delta", "partial_json": '"y"}'},
        ),
        *block(3, {"type": "tool_use", "id": "toolu_2", "name": "search", "input": {}}),
    ]
    async with provider(anthropic(*events)) as server:
        found = await deltas(AnthropicModel("m", base_url=server.url, api_key="k", max_tokens=9))
    assert found == [
        ThoughtDelta("hm"),
        TextDelta("Hello"),
        CallRequest("search", '{"q": "y"}'),
        CallRequest("search", "{}"),
        Usage({"input_tokens": 3, "output_tokens": 7}),
    ]
    ((first, headers, body),) = server.requests
    assert first == "POST /v1/messages HTTP/1.1"
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("k", "2023-06-01")
    assert (body["system"], body["max_tokens"]) == ("Be kind.", 9)
    use = {"type": "tool_use", "id": "call_0", "name": "search", "input": {"q": "x"}}
    result = {"type": "tool_result", "tool_use_id": "call_0", "content": "nothing", "is_error": True}
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "find it"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use]},
        {"role": "user", "content": [result, {"type": "text", "text": "try again"}]},
    ]
    assert body["tools"] == [{"name": "search", "description": "Searches.", "input_schema": SCHEMA}]


async def test_anthropic_gets_no_blank_text_and_starts_with_the_user() -> None:
    """The API refuses text of white space; some servers also refuse a conversation that starts with the assistant."""
    call = CallRequest("search", "{}", "call_0")
    messages = [
        ChatMessage("assistant", "\n\n"),
        ChatMessage("assistant", " ", (call,)),
        ChatMessage("tool", "", call_id="call_0"),
    ]
    async with provider(anthropic()) as server:
        model = AnthropicModel("m", base_url=server.url, api_key="k")
        assert [delta async for delta in model.stream(ModelRequest("", messages))]
    ((_, _, body),) = server.requests
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [[each["type"] for each in message["content"]] for message in body["messages"]] == [
        ["text"],
        ["tool_use"],
        ["tool_result"],
    ]


MODELS = [
    (OpenAIModel, lambda: openai({"content": "Hi"}), "OPENAI"),
    (AnthropicModel, lambda: anthropic(*block(0, {"type": "text", "text": ""}, {"text": "Hi"})), "ANTHROPIC"),
]


@pytest.mark.parametrize("text", ["a\u2028b", "a\u0085b", "\U0001f600\u2029"])
async def test_text_with_other_line_ends_is_one_event(text: str) -> None:
    """Only a line feed ends a line of the stream; providers do not escape the other ones in their JSON."""
    written = anthropic(*block(0, {"type": "text", "text": ""}, {"text": text}))
    async with provider(openai({"content": text}), written) as server:
        for kind in (OpenAIModel, AnthropicModel):
            found = await deltas(kind("m", base_url=server.url, api_key="k"))
            assert TextDelta(text) in found


async def test_text_that_utf8_can_not_encode_is_sent_with_a_replacement() -> None:
    """Half of a surrogate pair in one message must not prevent all later requests of its thread."""
    request = ModelRequest("Be kind.", [ChatMessage("user", "a\ud800b")])
    async with provider(openai({"content": "Hi"}), anthropic()) as server:
        for kind in (OpenAIModel, AnthropicModel):
            assert [delta async for delta in kind("m", base_url=server.url, api_key="k").stream(request)]
    assert [body["messages"][-1]["content"] for _, _, body in server.requests] == [
        "a?b",
        [{"type": "text", "text": "a?b"}],
    ]
    assert {headers["content-type"] for _, headers, _ in server.requests} == {"application/json"}


@pytest.mark.parametrize(("kind", "good", "name"), MODELS)
async def test_key_and_address_come_from_the_environment(
    kind: Any, good: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    with pytest.raises(ModelError, match=f"{name}_API_KEY"):
        await deltas(kind("m"))
    async with provider(good()) as server:
        monkeypatch.setenv(f"{name}_API_KEY", "from-env")
        monkeypatch.setenv(f"{name}_BASE_URL", server.url)
        assert TextDelta("Hi") in await deltas(kind("m"))
    assert "from-env" in json.dumps(server.requests[0][1])


@pytest.mark.parametrize(("kind", "good", "name"), MODELS)
async def test_a_busy_provider_is_retried(kind: Any, good: Any, name: str) -> None:
    busy = [Reply(status=429, headers={"retry-after": "0"}), Reply(status=529, body="overloaded")]
    async with provider(*busy, good()) as server:
        assert TextDelta("Hi") in await deltas(kind("m", base_url=server.url, api_key="k"))
    assert len(server.requests) == 3
    assert name


ERROR = json.dumps({"error": {"type": "invalid_request_error", "message": "no such model"}})
BROKEN = [
    (Reply(status=400, body=ERROR), 1, "returned 400: no such model"),
    (Reply(status=401, body="denied"), 1, "returned 401: denied"),
    (Reply(silent=True), 1, "did not respond within 0.2 s"),
    (Reply([f"data: {ERROR}\n\n"]), 1, "reported an error: no such model"),
    (Reply(["data: {\n\n"]), 1, "not a JSON object"),
    (Reply(status=503, headers={"retry-after": "3600"}), 1, "returned 503"),
]


@pytest.mark.parametrize(("reply", "count", "words"), BROKEN)
@pytest.mark.parametrize("kind", [OpenAIModel, AnthropicModel])
async def test_a_provider_that_fails(kind: Any, reply: Reply, count: int, words: str) -> None:
    async with provider(reply) as server:
        with pytest.raises(ModelError, match=words):
            await deltas(kind("m", base_url=server.url, api_key="k", timeout_seconds=0.2, retries=0))
    assert len(server.requests) == count


ODD = [
    (OpenAIModel, {"choices": [{"delta": {"tool_calls": [7]}}]}),
    (OpenAIModel, {"choices": 7}),
    (AnthropicModel, {"type": "content_block_start", "index": 0}),
    (AnthropicModel, {"type": "content_block_delta", "index": 0, "delta": None}),
]


@pytest.mark.parametrize(("kind", "event"), ODD)
async def test_an_event_that_does_not_follow_the_protocol_is_an_error(kind: Any, event: Any) -> None:
    """The event raises ModelError, like all provider errors, not a KeyError of the adapter."""
    async with provider(Reply([f"data: {json.dumps(event)}\n\n"])) as server:
        with pytest.raises(ModelError, match="does not follow its protocol"):
            await deltas(kind("m", base_url=server.url, api_key="k", retries=0))


async def test_openai_events_without_choices_and_refusals() -> None:
    """Some servers send null for an empty list; a refusal is text of the model."""
    empty = f"data: {json.dumps({'choices': None})}\n\n"
    reply = openai({"refusal": "I can't help with that."})
    async with provider(Reply([empty, *reply.events])) as server:
        found = await deltas(OpenAIModel("m", base_url=server.url, api_key="k"))
    assert TextDelta("I can't help with that.") in found


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize(
    ("kind", "half"),
    [
        (OpenAIModel, lambda cut: openai({"content": "Hi"}, finish=None, cut=cut)),
        (AnthropicModel, lambda cut: anthropic(*block(0, {"type": "text", "text": "Hi"}), stop=False, cut=cut)),
    ],
)
async def test_an_incomplete_response_is_an_error(kind: Any, half: Any, cut: bool) -> None:
    """An incomplete response is not retried, because users already saw its beginning."""
    async with provider(half(cut), half(cut)) as server:
        with pytest.raises(ModelError, match=r"ended early|connection"):
            await deltas(kind("m", base_url=server.url, api_key="k"))
    assert len(server.requests) == 1


async def test_a_model_of_pydantic_ai() -> None:
    seen: list[Any] = []

    async def speak(messages: Any, info: Any) -> Any:
        seen.append((messages, info))
        yield "Hel"
        yield "lo"
        yield {0: DeltaToolCall(name="search", json_args='{"q": "y"}')}

    for model in (FunctionModel(stream_function=speak), Agent(FunctionModel(stream_function=speak))):
        found = await deltas(PydanticAIModel(model))
        assert found[:3] == [TextDelta("Hel"), TextDelta("lo"), CallRequest("search", '{"q":"y"}')]
    messages, info = seen[0]
    assert [tool.name for tool in info.function_tools] == ["search"]
    assert [[part.part_kind for part in each.parts] for each in messages] == [
        ["system-prompt", "user-prompt"],
        ["text", "tool-call"],
        ["tool-return", "user-prompt"],
    ]


async def test_an_error_of_pydantic_ai_is_a_model_error() -> None:
    async def fail(_messages: Any, _info: Any) -> Any:
        raise ModelHTTPError(503, "m", "overloaded")
        yield "never"

    with pytest.raises(ModelError, match="503"):
        await deltas(PydanticAIModel(FunctionModel(stream_function=fail)))
