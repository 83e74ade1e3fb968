"""Tools: checked arguments, events of a call, and registries."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from keelbolt.errors import (
    ArtifactIdCollision,
    InvalidInitialToolValue,
    InvalidToolArgs,
    LlmExecutionExecutorError,
    ToolAlreadyRegistered,
    ToolDownstreamError,
)
from keelbolt.turns import (
    DispatchContext,
    SpooledArtifact,
    Tool,
    ToolRegistry,
    TurnInput,
    TurnRunner,
    noop_storage,
    tool_call_checksum,
)
from keelbolt.turns.events import TextReport
from keelbolt.turns.in_memory import InMemorySpoolReader
from keelbolt.turns.schemas import json_schema
from tests.unit.turns.stage import TIMES, Stage, retrievable, tool_call

AT = datetime(2026, 1, 31, tzinfo=UTC)


class Sum(BaseModel):
    a: int
    b: int = 0


def add(args: Any, _ctx: Any, meta: Any) -> str:
    return f"{args.a + args.b} {meta.get('unit', '')}".strip()


def tool(name: str = "add", **fields: Any) -> Tool:
    usual: dict[str, Any] = {"description": "adds", "input_schema": Sum, "handler": add}
    return Tool(name=name, **{**usual, **fields})


async def execute(one: Tool, args: Any) -> tuple[Any, Stage]:
    answers: list[Any] = []
    stage = Stage()

    async def work(ctx: Any, _helpers: Any) -> None:
        try:
            answers.append(await ctx.tools.get(one.name).executor(ctx)(args))
        except (InvalidToolArgs, ToolDownstreamError) as error:
            answers.append(error)
        ctx.ack()

    result = await stage.run(work, tools=[one])
    assert result.status == "ack", result.errors
    return answers[0], stage


async def test_a_tool_is_called_with_checked_arguments_and_emits_events() -> None:
    answer, stage = await execute(tool(meta={"unit": "€"}), {"a": "1", "b": 2})
    assert answer == "3 €"
    start, end = stage.payloads("tool_execution_start")[0], stage.payloads("tool_execution_end")[0]
    assert start.call_id == end.call_id == tool_call_checksum("add", {"a": "1", "b": 2})  # of the raw arguments
    assert (start.tool_name, start.args, end.is_error) == ("add", {"a": "1", "b": 2}, False)
    assert start.turn_id == stage.payloads("turn_start")[0].turn_id
    assert start.dispatch_id == stage.payloads("dispatch_start")[0].dispatch_id
    assert stage.log.index("tool_execution_start") < stage.log.index("tool_execution_end")


async def test_wrong_arguments_never_reach_the_tool() -> None:
    for args in ({}, {"a": "x"}, {"a": {1}}, [1]):
        answer, stage = await execute(tool(), args)
        assert isinstance(answer, InvalidToolArgs)
        assert (answer.status, stage.names("tool_execution_start")) == (422, [])


async def test_a_tool_that_raises_or_returns_an_invalid_value() -> None:
    failure = OSError("down")

    async def fail(_args: Any, _ctx: Any, _meta: Any) -> str:
        raise failure

    answer, stage = await execute(tool(handler=fail), {"a": 1})
    assert isinstance(answer, ToolDownstreamError)
    assert answer.__cause__ is failure
    assert stage.payloads("tool_execution_end")[0].is_error
    answer, _ = await execute(tool(handler=lambda _a, _c, _m: 5), {"a": 1})
    assert "returned int" in str(answer)


async def test_an_abort_inside_a_tool_is_an_abort() -> None:
    async def stop(_args: Any, ctx: Any, _meta: Any) -> str:
        ctx.abort("enough")
        ctx.abort_signal.raise_if_aborted()
        return ""

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.tools.get("add").executor(ctx)({"a": 1})

    stage = Stage()
    result = await stage.run(work, tools=[tool(handler=stop)])
    assert (result.status, result.errors) == ("aborted", ())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, "name is empty"),
        ({"description": ""}, "description is empty"),
        ({"input_schema": None}, "input_schema"),
        ({"input_schema": {"type": "string"}}, "describe an object"),
        ({"input_schema": TypeAdapter(int)}, "describe an object"),
        ({"input_schema": {"type": "object", "not": {}}}, "'not', which is not supported"),
        ({"input_schema": {"type": "object", "properties": {"a": {"type": "money"}}}}, "'money'"),
        ({"input_schema": {"type": "object", "properties": []}}, "properties must be a dict, not list"),
        ({"input_schema": {"type": "object", "required": "n"}}, "required must be a list, not str"),
        ({"input_schema": {"type": "object", "properties": {"s": {"pattern": "("}}}}, "s.pattern is not a regular"),
        ({"input_schema": {"type": "object", "properties": {"n": {"minimum": "1"}}}}, "n.minimum must be a number"),
        ({"handler": None}, "handler must be a function"),
        ({"handler": lambda _args: ""}, "it must take 3: (args, ctx, meta)"),
        ({"ephemeral": 1}, "ephemeral"),
        ({"trusted": None}, "trusted"),
        ({"on_collision": "merge"}, "on_collision"),
        ({"meta": []}, "meta must be a dict"),
        ({"artifact_constructor": 5}, "artifact_constructor"),
        ({"colour": "red"}, "'colour'"),
    ],
)
def test_a_wrong_tool_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInitialToolValue) as refused:
        tool(**{"name": "add", **fields})
    assert words in str(refused.value)


PLAIN = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1, "exclusiveMaximum": 9},
        "s": {"type": ["string", "null"], "minLength": 1, "maxLength": 3, "pattern": "^a"},
        "l": {"type": "array", "items": {"enum": [1, "x"]}, "maxItems": 2},
        "c": {"const": True},
        "u": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        "p": {"type": "array", "items": {"type": "integer"}, "anyOf": [{"minItems": 2}, {"maxItems": 0}]},
    },
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"n": 1, "s": None, "l": [1, "x"], "c": True, "u": 1.5}, None),
        ({"n": 2.0, "s": "ab"}, None),
        ({}, "value.n: is missing"),
        ({"n": 0}, "value.n: must be at least 1"),
        ({"n": 9}, "value.n: must be less than 9"),
        ({"n": True}, "value.n: must be integer"),
        ({"n": 1, "s": ""}, "length at least"),
        ({"n": 1, "s": "abcd"}, "length at most"),
        ({"n": 1, "s": "b"}, "a match of"),
        ({"n": 1, "l": [2]}, "value.l[0]: must be one of 1, 'x'"),
        ({"n": 1, "l": [1, 1, 1]}, "length at most 2"),
        ({"n": 1, "c": False}, "must be True"),
        ({"n": 1, "u": []}, "must match one"),
        ({"n": 1, "x": 1}, "value.x: is not allowed"),
        ({"n": 1, "l": [True]}, "value.l[0]: must be one of"),
        ({"n": 1, "c": 1}, "must be True"),
        ({"n": 1, "p": [1]}, "value.p: must match one"),
        ({"n": 1, "p": [1, "x"]}, "value.p[1]: must be integer"),
    ],
)
async def test_plain_json_schemas(args: Any, problem: str | None) -> None:
    one = tool(input_schema=PLAIN, handler=lambda args, _ctx, _meta: str(args["n"]))
    answer, _ = await execute(one, args)
    if problem is None:
        assert answer == str(args["n"])
    else:
        assert problem in str(answer)
    assert one.json_schema() == PLAIN
    assert (tool().json_schema() or {})["type"] == "object"


def test_a_schema_is_generated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request to the model needs the schemas of all tools. A caller may change what it got."""
    generated: list[object] = []
    generate = GenerateJsonSchema.generate

    def counted(self: GenerateJsonSchema, *arguments: Any, **named: Any) -> Any:
        generated.append(self)
        return generate(self, *arguments, **named)

    monkeypatch.setattr(GenerateJsonSchema, "generate", counted)

    class Pair(BaseModel):
        left: int

    for schema in (Pair, TypeAdapter(list[Pair])):
        first = json_schema(schema)
        assert first is not None
        wanted = dict(first)
        first.clear()
        assert json_schema(schema) == wanted
    assert len(generated) == 2


class Leaf(BaseModel):
    name: Literal["leaf"]
    size: int


class Tree(BaseModel):
    name: Literal["tree"]
    parts: list[Annotated[Leaf | Tree, Field(discriminator="name")]] = []


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"name": "tree"}, None),
        ({"name": "tree", "parts": [{"name": "leaf", "size": 1}, {"name": "tree", "parts": []}]}, None),
        ({"name": "leaf"}, "value.name: must be 'tree'"),
        ({"name": "tree", "parts": [{"name": "leaf", "size": "x"}]}, "must match exactly one of its schemas"),
        ({"name": "tree", "parts": [{"name": "tree", "parts": [7]}]}, "must match exactly one of its schemas"),
    ],
)
async def test_json_schemas_with_definitions(args: Any, problem: str | None) -> None:
    """A JSON Schema that pydantic generates, with recursive ``$defs``."""
    one = tool(input_schema=Tree.model_json_schema(), handler=lambda _args, _ctx, _meta: "fine")
    answer, _ = await execute(one, args)
    assert (answer == "fine") if problem is None else problem in str(answer)


def test_a_recursive_model_is_described_as_an_object() -> None:
    """The JSON Schema that pydantic generates for it is only a reference at the top."""
    for schema in (Tree, TypeAdapter(Tree), Tree.model_json_schema()):
        shown = tool(input_schema=schema).json_schema() or {}
        assert (shown["type"], set(shown["properties"])) == ("object", {"name", "parts"})
        assert "Tree" in shown["$defs"]


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"x": {"$ref": "#/$defs/nowhere"}}, "not among the \\$defs"),
        ({"x": {"$ref": "https://example.com/schema"}}, "not among the \\$defs"),
        ({"x": {"$ref": "#/$defs/loop"}}, "refers to itself"),
    ],
)
def test_unresolvable_references_are_refused(properties: Any, words: str) -> None:
    definitions = {"loop": {"$ref": "#/$defs/other"}, "other": {"$ref": "#/$defs/loop"}}
    with pytest.raises(InvalidInitialToolValue, match=words):
        tool(input_schema={"type": "object", "properties": properties, "$defs": definitions})


def test_a_registry() -> None:
    registry = ToolRegistry([tool("a"), tool("b")])
    with pytest.raises(ToolAlreadyRegistered, match="overwrite=True"):
        registry.register(tool("a"))
    with pytest.raises(InvalidInitialToolValue):
        registry.register("a")  # type: ignore[arg-type]
    newer = tool("a", ephemeral=True)
    registry.register(newer, overwrite=True)
    assert [one.name for one in registry] == ["a", "b"]
    assert (registry.get("a"), registry.get("x"), registry.has("b"), "b" in registry) == (newer, None, True, True)
    registry.hide("a")
    assert ([t.name for t in registry.visible()], [t.name for t in registry.hidden()]) == (["b"], ["a"])
    copied = registry.copy()
    registry.unhide("a")
    registry.set_hidden(["b"])
    assert [t.name for t in registry.visible()] == ["a"]
    registry.clear_hidden()
    assert len(registry.visible()) == 2
    assert [t.name for t in copied.hidden()] == ["a"]
    assert [t.name for t in registry.prune_ephemeral()] == ["a"]
    assert (registry.unregister("b"), registry.unregister("b"), len(registry)) == (True, False, 0)


def test_registries_are_merged() -> None:
    def named(on_collision: Any) -> ToolRegistry:
        return ToolRegistry([tool("a", on_collision=on_collision)])

    first, later = named(None), named(None)
    with pytest.raises(ToolAlreadyRegistered):
        ToolRegistry.merge([first, later])
    assert ToolRegistry.merge([first, later], on_collision="replace").get("a") is later.get("a")
    assert ToolRegistry.merge([first, later], on_collision="keep").get("a") is first.get("a")
    stubborn = named("replace")
    assert ToolRegistry.merge([first, stubborn], on_collision="keep").get("a") is stubborn.get("a")
    later.hide("a")
    merged = ToolRegistry.merge([first, later], on_collision="replace")
    assert [t.name for t in merged.hidden()] == ["a"]
    assert ToolRegistry.merge([later, first], on_collision="keep").hidden() == later.all()
    with pytest.raises(InvalidInitialToolValue):
        ToolRegistry.merge([], on_collision="merge")  # type: ignore[arg-type]


@pytest.mark.parametrize("acknowledged", [True, False])
async def test_ephemeral_tools_are_removed_by_an_ack(acknowledged: bool) -> None:
    registry = ToolRegistry([tool("once", ephemeral=True), tool("always")])

    async def work(ctx: Any, _helpers: Any) -> None:
        registry.bind_context(ctx)
        ctx.ack() if acknowledged else ctx.nack()

    await Stage().run(work)
    assert [one.name for one in registry] == (["always"] if acknowledged else ["once", "always"])


@pytest.mark.parametrize("checked", [True, False])
async def test_check_artifact_ids_refuses_ids_used_by_two_kinds(checked: bool) -> None:
    from dataclasses import replace

    artifact = SpooledArtifact(InMemorySpoolReader(b"text"))

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_retrievable(replace(retrievable("same"), content=artifact))
        await ctx.store_tool_call(tool_call("same"))  # no artifact yet
        done = {"is_complete": True, "results": artifact, "completed_at": TIMES["created_at"]}
        await ctx.mutate_tool_call(replace(tool_call("same"), **done))
        ctx.ack()

    result = await Stage().run(work, check_artifact_ids=checked)
    assert result.status == ("nack" if checked else "ack")
    if checked:
        assert isinstance(result.errors[0], LlmExecutionExecutorError)
        assert isinstance(result.errors[0].__cause__, ArtifactIdCollision)


async def test_a_plain_handler_does_not_block_the_event_loop() -> None:
    """The handler runs in a thread: the loop continues, and its events are emitted on the loop's thread."""
    threads: list[int] = []
    ticks = 0

    def handler(_args: Any, ctx: Any, _meta: Any) -> str:
        time.sleep(0.3)
        ctx.emit_message(TextReport(id="m", created_at=AT, updated_at=AT, full="", delta="", is_complete=False))
        return str(threading.get_ident())

    slow = Tool(name="slow", description="Sleeps.", input_schema={"type": "object"}, handler=handler)

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        ticking = asyncio.create_task(tick())
        thread = await slow.executor(ctx)({})
        ticking.cancel()
        assert thread != str(threading.get_ident())
        ctx.ack()

    runner = TurnRunner(executor_callback=execute, **noop_storage())
    runner.on("message", lambda _report: threads.append(threading.get_ident()))
    result = await runner.run_result(TurnInput(system_prompt="x"))
    assert result.ok, result.errors
    assert ticks > 3
    assert threads == [threading.get_ident()]
