"""Modules that ask and report progress while they run, by the conventions of apcore-mcp."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from apcore import Context, ModuleAnnotations

from keelbolt.apcore import elicit, report_progress
from keelbolt.apcore.elicitation import read_answer
from keelbolt.protocol.types import Message, Part, Role
from tests.integration.apcore.calling import message, output, state, status_data, status_text, streamed, task_of
from tests.integration.apcore.modules import Anything, agent_of, executor_of, registry_of
from tests.integration.server.asgi import call

SIZE = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 1}, "gift": {"type": "boolean"}},
    "required": ["size"],
}


class Order:
    """Asks for a size with the callback in the context, as apcore-mcp's helper does."""

    input_schema: Any = Anything
    output_schema: Any = Anything
    description = "Orders a shirt"
    calls: ClassVar[list[Any]] = []

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        self.calls.append(inputs)
        return {"answer": await context.data["_mcp_elicit"]("Which size?", SIZE)}


class Destroy(Order):
    annotations = ModuleAnnotations(destructive=True)


class InAThread(Order):
    def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:  # type: ignore[override]
        return {"answer": asyncio.run(elicit(context, "Which size?", SIZE))}


class Streams(Order):
    annotations = ModuleAnnotations(streaming=True)

    async def stream(self, inputs: dict[str, Any], context: Context[Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"before": 1}
        yield {"answer": await elicit(context, "Which size?", SIZE)}


class Calls(Order):
    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        found: dict[str, Any] = await context.executor.call_async("order", {}, context)
        return found


@pytest.mark.parametrize("kind", [Order, Destroy, InAThread, Calls])
async def test_a_question_waits_for_the_answer_of_the_user(kind: Any) -> None:
    registry = registry_of(order=Order(), asks=kind())
    async with agent_of(executor_of(registry)) as server:
        asked = await task_of(server.app, {}, skill="asks")
        assert (state(asked), status_text(asked)) == ("input_required", "Which size?")
        assert status_data(asked) == {"requestedSchema": SIZE, "answers": ["decline", "cancel"]}
        done = await task_of(server.app, {"size": 3.0, "gift": True}, taskId=asked["id"])
        assert done["id"] == asked["id"]
        assert output(done) == {"answer": {"action": "accept", "content": {"size": 3, "gift": True}}}


async def test_a_restarted_stream_shows_each_chunk_once() -> None:
    async with agent_of(executor_of(registry_of(asks=Streams()))) as server:
        asked = await streamed(server.app, {}, skill="asks")
        assert state(asked) == "input_required"
        done = await streamed(server.app, "decline", contextId=asked["contextId"])
        [artifact] = done["artifacts"]
        assert [part["data"] for part in artifact["parts"]] == [{"before": 1}, {"answer": {"action": "decline"}}]


async def test_an_invalid_answer_is_requested_again() -> None:
    async with agent_of(executor_of(registry_of(asks=Order()))) as server:
        asked = await task_of(server.app, {}, skill="asks")
        again = await task_of(server.app, {"size": 0}, taskId=asked["id"])
        assert state(again) == "input_required"
        assert status_text(again) == "size: 0 is less than the minimum of 1. Which size?"
        assert output(await task_of(server.app, "4", taskId=asked["id"]))["answer"]["content"] == {"size": 4}


@pytest.mark.parametrize(
    ("given", "schema", "wanted"),
    [
        ({"action": "decline"}, SIZE, {"action": "decline"}),
        ({"action": "cancel", "content": {}}, SIZE, {"action": "cancel"}),
        ({"action": "accept", "content": {"size": 2}}, SIZE, {"action": "accept", "content": {"size": 2}}),
        ('{"size": 2}', SIZE, {"action": "accept", "content": {"size": 2}}),
        ("Cancel.", SIZE, {"action": "cancel"}),
        ("yes", {}, {"action": "accept", "content": {"text": "yes"}}),
        ("no", {}, {"action": "decline"}),
        ("accept", {}, {"action": "accept", "content": {}}),
        ("Yes", {"properties": {"ok": {"type": "boolean"}}}, {"action": "accept", "content": {"ok": True}}),
        ("no", {"properties": {"ok": {"type": "boolean"}}}, {"action": "accept", "content": {"ok": False}}),
        ("no", {"properties": {"why": {"type": "string"}}}, {"action": "accept", "content": {"why": "no"}}),
        (
            {"action": "run"},
            {"properties": {"action": {"type": "string"}}},
            {"action": "accept", "content": {"action": "run"}},
        ),
    ],
)
def test_meaning_of_answers(given: Any, schema: dict[str, Any], wanted: dict[str, Any]) -> None:
    part = Part(text=given) if isinstance(given, str) else Part(data=given)
    assert read_answer(Message(message_id="1", role=Role.user, parts=[part]), schema) == wanted


class Works:
    input_schema = Anything
    output_schema = Anything
    description = "Works for a while"

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        await report_progress(context, 1, 3, "reading")
        await context.data["_mcp_progress"](2, 3, None)
        await report_progress(context, 3, 3)
        return {}


async def test_progress_becomes_status_messages() -> None:
    async with agent_of(executor_of(registry_of(works=Works()))) as server:
        events = (await call(server.app, "SendStreamingMessage", {"message": message({})})).events
        parts = [
            (event.get("statusUpdate") or {}).get("status", {}).get("message", {}).get("parts", [])
            for event in (one["result"] for one in events)
        ]
        contents = [[part.get("text", part.get("data")) for part in each] for each in parts if each]
        assert contents == [
            ["reading", {"progress": 1, "total": 3}],
            ["3 of 3", {"progress": 3, "total": 3}],
        ]


async def test_without_a_task_the_helpers_do_nothing() -> None:
    context: Context[Any] = Context.create()
    assert await elicit(context, "Well?") is None
    await report_progress(context, 1)


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [("9007199254740993", "integer", 9007199254740993), ("3.0", "integer", 3), ("2.5", "number", 2.5)],
)
def test_numbers_in_an_answer_are_exact(text: str, kind: str, number: float) -> None:
    said = Message(message_id="m", role=Role.user, parts=[Part(text=text)])
    assert read_answer(said, {"properties": {"n": {"type": kind}}}) == {"action": "accept", "content": {"n": number}}


@pytest.mark.parametrize("text", ["nan", "-inf", "1e400", "x" * 100_000])
async def test_an_answer_that_is_no_number_is_asked_again_briefly(text: str) -> None:
    class Weighs(Order):
        async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
            return {"answer": await elicit(context, "Which weight?", {"properties": {"n": {"type": "number"}}})}

    async with agent_of(executor_of(registry_of(weighs=Weighs()))) as server:
        asked = await task_of(server.app, {})
        again = await task_of(server.app, text, taskId=asked["id"])
        assert state(again) == "input_required"
        assert len(status_text(again)) < 500


@pytest.mark.parametrize(("progress", "total"), [(float("nan"), 10.0), (1.0, float("inf"))])
async def test_progress_that_is_no_number_does_not_fail_the_module(progress: float, total: float) -> None:
    class Reports(Order):
        async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
            await report_progress(context, progress, total)
            return {"done": True}

    async with agent_of(executor_of(registry_of(reports=Reports()))) as server:
        assert output(await task_of(server.app, {})) == {"done": True}
