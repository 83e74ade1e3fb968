"""Primitives are deeply immutable, so that storage and sets always agree."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core import to_json

from keelbolt.turns import (
    DispatchContext,
    Identity,
    Media,
    Memory,
    Message,
    Registry,
    Retrievable,
    Thought,
    Tokenizable,
    Tool,
    ToolCall,
    TurnInput,
    TurnRunner,
    noop_storage,
)
from keelbolt.turns.in_memory import InMemoryMediaReader, InMemorySpoolReader
from keelbolt.turns.primitives.values import FrozenDict, FrozenList, frozen, thawed
from keelbolt.turns.sets import checked_write

DATA = {"a": {"b": [1, {"c": 2}]}, "d": [3]}


def media() -> Media:
    entry: Any = {"value": {"words": ["cat"]}, "trust_tier": "first-party"}
    return Media.tool_generated(
        kind="image", mime_type="image/png", filename="x", reader=InMemoryMediaReader(b""), stash={"caption": entry}
    )


MESSAGE = Message(id="m", role="user", content="hello", attachments=[media()], identity="ann")
MEMORY = Memory(id="f", content="a fact", confidence=1, importance=1)
THOUGHT = Thought(id="t", content="hmm", payload=DATA, replay_compatibility="x")
CALL = ToolCall(id="c", tool="add", args=DATA, payload=DATA, replay_compatibility="x", results="3", is_complete=True)
KNOWN = Retrievable(id="r", content="text", trust_tier="first-party")

CHANGES: dict[str, Callable[[], Any]] = {
    "a field of a message": lambda: setattr(MESSAGE, "id", "other"),
    "text of a message": lambda: MESSAGE.content.set("other"),  # type: ignore[union-attr]
    "who said a message": lambda: MESSAGE.identity.representation.set("other"),
    "stash of an attachment": lambda: MESSAGE.attachments[0].stash.set("caption.value", "dog"),
    "text of a memory": lambda: MEMORY.content.set("other"),
    "text of a thought": lambda: THOUGHT.content.set("other"),
    "who thought": lambda: THOUGHT.identity.representation.set("other"),
    "payload of a thought": lambda: THOUGHT.payload["a"]["b"].append(1),
    "arguments of a call": lambda: CALL.args.update(x=1),
    "nested arguments of a call": lambda: CALL.args["a"]["b"][1].__setitem__("c", 3),
    "payload of a call": lambda: CALL.payload["a"].pop("b"),
    "results of a call": lambda: CALL.results.set("4"),  # type: ignore[union-attr]
    "text of a retrievable": lambda: KNOWN.content.set("other"),  # type: ignore[union-attr]
    "an instruction that is being stored": lambda: checked_write(
        "store", "standing_instruction", Tokenizable("be kind")
    ).value.set("be rude"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_primitive_can_not_be_changed(change: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, AttributeError)):
        change()


def test_values_read_from_a_stash_are_copies() -> None:
    picture = media()
    picture.stash.get("caption")["value"]["words"].append("dog")
    assert picture.stash.get("caption.value.words") == ["cat"]
    more = {**picture.stash.all(), "more": {"value": 1, "trust_tier": "first-party"}}
    changed = replace(picture, stash=Registry(more))
    assert (picture.stash.has("more"), changed.stash.has("more")) == (False, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.__setitem__("x", 1),
        lambda value: value.__delitem__("a"),
        lambda value: value.__ior__({"x": 1}),
        lambda value: value.clear(),
        lambda value: value.pop("a"),
        lambda value: value.popitem(),
        lambda value: value.setdefault("x", 1),
        lambda value: value.update(x=1),
        lambda value: value["d"].__setitem__(0, 1),
        lambda value: value["d"].__setitem__(slice(0, 1), []),
        lambda value: value["d"].__delitem__(0),
        lambda value: value["d"].__iadd__([1]),
        lambda value: value["d"].__imul__(2),
        lambda value: value["d"].append(1),
        lambda value: value["d"].clear(),
        lambda value: value["d"].extend([1]),
        lambda value: value["d"].insert(0, 1),
        lambda value: value["d"].pop(),
        lambda value: value["d"].remove(3),
        lambda value: value["d"].reverse(),
        lambda value: value["d"].sort(),
    ],
)
def test_every_change_is_refused(change: Callable[[Any], Any]) -> None:
    value = frozen(DATA)
    with pytest.raises(TypeError, match="can't be changed"):
        change(value)
    assert value == DATA


def test_all_mutating_methods_are_refused() -> None:
    """Every mutating method of dict and list is refused; a method that a new Python adds fails this test."""
    reading = {"copy", "fromkeys", "get", "items", "keys", "values", "count", "index"}
    for kind, plain in ((FrozenDict, dict), (FrozenList, list)):
        named = {name for name in vars(plain) if not name.startswith("_")}
        assert {name for name in named if getattr(kind, name) is getattr(plain, name)} <= reading


def test_readers_see_plain_data() -> None:
    """JSON, pydantic and comparisons treat a frozen dict as a dict; copies can be changed."""
    value = CALL.args
    assert value == DATA
    assert json.loads(json.dumps(value)) == json.loads(to_json(value)) == DATA
    assert TypeAdapter(dict[str, Any]).validate_python(value) == DATA
    copies = [copy.deepcopy(value), pickle.loads(pickle.dumps(value)), thawed(value), json.loads(json.dumps(value))]
    for each in copies:
        each["a"]["b"].append(1)
    copied = copy.copy(value)
    copied["x"] = 1
    assert value == DATA


def test_arguments_can_be_changed_afterwards() -> None:
    given: dict[str, Any] = {"a": [1], "s": {1}, "t": ([1],)}
    thought = Thought(id="t", payload=given, replay_compatibility="x")
    text = Tokenizable("before")
    message = Message(id="m", role="user", content=text)
    spooled = bytearray(b"line")
    reader = InMemorySpoolReader(spooled)  # type: ignore[arg-type]
    given["a"].append(2)
    given["t"][0].append(2)
    text.set("after")
    spooled[:] = b"x"
    assert thought.payload == {"a": [1], "s": {1}, "t": ([1],)}
    assert str(message.content) == "before"
    assert reader._data == b"line"


def test_a_changed_copy_shares_frozen_values() -> None:
    """Sharing makes `replace` cheap, and token counts stay cached."""
    changed = replace(MESSAGE, id="m2")
    assert changed.content is MESSAGE.content
    assert changed.identity is MESSAGE.identity
    assert Identity(identifier=1, representation=MEMORY.content).representation is MEMORY.content


async def test_a_tool_may_change_its_arguments() -> None:
    """A tool gets a copy; the stored call does not change."""

    async def spoil(args: dict[str, Any], _ctx: Any, _meta: Any) -> str:
        args["a"]["b"].clear()
        args.clear()
        return "done"

    call = ToolCall(id="c", tool="spoil", args=DATA)
    spoiler = Tool(name="spoil", description="Spoil.", input_schema={"type": "object"}, handler=spoil)

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.store_tool_call(call)
        assert await spoiler.executor(ctx)(call.args) == "done"
        ctx.ack()

    result = await TurnRunner(executor_callback=execute, **noop_storage()).run_result(TurnInput(system_prompt="Go."))
    assert result.ok, result.errors
    assert call.args == DATA
