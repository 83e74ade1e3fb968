"""The durable adapter, callback by callback, on every engine."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import (
    InvalidValue,
    StorageClosed,
    TurnStorageDuplicateId,
    TurnStorageNotFound,
)
from keelbolt.kernel import open_storage
from keelbolt.turns.codec import ArtifactTypes, Resolvers
from keelbolt.turns.durable import DurableStorage, durable_storage
from keelbolt.turns.durable.families import FAMILIES
from keelbolt.turns.in_memory import InMemoryMediaReader, InMemorySpoolReader
from keelbolt.turns.primitives import SpooledArtifact, Tokenizable
from keelbolt.turns.readers import Descriptor
from tests.integration.turns.stage import (
    FETCHES,
    MAKE,
    PLAIN,
    Calls,
    Turn,
    comparable,
    image,
    memory,
    message,
    one_of_each,
    retrievable,
    thought,
    tool_call,
)

# ------------------------------------------------------------------------------------------------------ 38: round trips


async def test_check_38_primitives_survive_a_round_trip(calls: Calls) -> None:
    """Each primitive is equal field by field, in the order of storing."""
    stored: dict[str, list[Any]] = {}
    for kind, value in one_of_each():
        await calls.do("store", kind, value)
        stored.setdefault(kind, []).append(value)
    for kind, values in stored.items():
        found = await calls.fetch(kind)
        assert [await comparable(value) for value in found] == [await comparable(value) for value in values]


async def test_check_38_in_a_new_process(lasting_url: str) -> None:
    async with durable_storage(lasting_url) as storage:
        calls = Calls(storage.callbacks(), Turn())
        async with storage.unit_of_work(Turn()):
            for kind, value in one_of_each():
                await calls.do("store", kind, value)
    child = Path(__file__).with_name("reads_back.py")
    done = subprocess.run([sys.executable, str(child), lasting_url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(FETCHES)


async def test_check_39_transient_bytes_survive_the_process(lasting_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader without a descriptor is read when its message is stored, and the message holds the bytes."""
    data = bytes(range(256)) * 5000
    async with durable_storage(lasting_url) as storage:
        stage = functools.partial(storage.kernel.stage_blob, keep_seconds=0.0)
        monkeypatch.setattr(storage.kernel, "stage_blob", stage)
        await Calls(storage.callbacks(), Turn()).store_message(message(attachments=[image(InMemoryMediaReader(data))]))
    async with durable_storage(lasting_url) as storage:
        await storage.reap(older_than=0)
        while (await storage.kernel.sweep()).blobs:
            pass
        [found] = await Calls(storage.callbacks(), Turn("later")).fetch("message")
        read = await found.attachments[0].as_bytes()
        assert hashlib.sha256(read).hexdigest() == hashlib.sha256(data).hexdigest()


async def test_values_are_ordered_by_storing_not_by_time(calls: Calls) -> None:
    for number in (5, 1, 9, 3):
        await calls.store_message(message(f"m{number}", created_at=number, updated_at=number))
    await calls.mutate_message(message("m5", "changed", created_at=99, updated_at=99))
    assert await calls.ids() == ["m5", "m1", "m9", "m3"]


# --------------------------------------------------------------------------------------------------- 40, 41: one record


async def test_check_40_a_pending_call_is_completed(storage: DurableStorage, calls: Calls) -> None:
    """The other calls do not change, and the completed call keeps its position."""

    async def rows() -> dict[str, dict[str, Any]]:
        return {row["id"]: row async for row in storage.export("acme")}

    for number in range(3):
        await calls.store_tool_call(tool_call(f"call_{number}"))
    before = await rows()
    await calls.mutate_tool_call(tool_call("call_1", "42"))
    after = await rows()
    assert [call.id for call in await calls.fetch("tool_call")] == ["call_0", "call_1", "call_2"]
    [done] = [call for call in await calls.fetch("tool_call") if call.is_complete]
    assert (done.id, str(done.results)) == ("call_1", "42")
    changed, was = after.pop("call_1"), before.pop("call_1")
    assert after == before
    assert (changed["seq"], changed["created"]) == (was["seq"], was["created"])


@pytest.mark.parametrize("kind", PLAIN)
async def test_check_41_the_same_store_twice_is_one_row(calls: Calls, kind: str) -> None:
    make = MAKE[kind]
    await calls.do("store", kind, make("x"))
    await calls.do("store", kind, make("x"))
    assert await calls.ids(kind) == ["x"]
    other = {"args": {"a": 2}} if kind == "tool_call" else {"content": "another"}
    with pytest.raises(TurnStorageDuplicateId):
        await calls.do("store", kind, make("x", **other))
    await calls.do("mutate", kind, make("x", **other))
    with pytest.raises(TurnStorageNotFound):
        await calls.do("mutate", kind, make("missing"))
    await calls.do("delete", kind, "missing")
    await calls.do("delete", kind, "x")
    await calls.do("delete", kind, "x")
    assert await calls.ids(kind) == []
    with pytest.raises(TurnStorageNotFound):
        await calls.do("mutate", kind, make("x"))
    await calls.do("store", kind, make("y"))
    await calls.do("store", kind, make("x"))
    assert await calls.ids(kind) == ["y", "x"], "stored anew, it is the last"


@pytest.mark.parametrize("kind", ["tool_call", "thought"])
async def test_check_41_ids_are_separate_in_every_turn(storage: DurableStorage, kind: str) -> None:
    """Providers name the first call of each turn call_0: these are two rows, and a change affects only one."""
    turns = [Calls(storage.callbacks(), Turn(name)) for name in ("one", "two", "three")]
    field, values = ("args", ({"n": 1}, {"n": 2})) if kind == "tool_call" else ("content", ("first", "second"))

    async def seen() -> list[str]:
        return [str(getattr(value, field)) for value in await turns[2].fetch(kind)]

    for turn, value in zip(turns, values, strict=False):
        await turn.do("store", kind, MAKE[kind]("call_0", **{field: value}))
    assert await seen() == [str(value) for value in values]
    changed = {"n": 3} if kind == "tool_call" else "third"
    await turns[0].do("mutate", kind, MAKE[kind]("call_0", **{field: changed}))
    assert await seen() == [str(changed), str(values[1])], "that of its own turn"
    await turns[2].do("mutate", kind, MAKE[kind]("call_0", **{field: changed}))
    assert await seen() == [str(changed), str(changed)], "from a turn without one: the latest"
    await turns[2].do("delete", kind, "call_0")
    await turns[2].do("delete", kind, "call_0")
    assert await seen() == [str(changed)], "the latest, and a repeat takes no other"
    with pytest.raises(TurnStorageNotFound):
        await turns[2].do("mutate", kind, MAKE[kind]("call_0"))
    await turns[2].do("store", kind, MAKE[kind]("call_0"))
    await turns[2].do("delete", kind, "call_0")
    await turns[2].do("delete", kind, "call_0")
    assert await seen() == [str(changed)], "its own, and a repeat takes no other"
    await turns[0].do("delete", kind, "call_0")
    assert await seen() == []


@pytest.mark.parametrize(("duplicates", "left"), [("keep", "first"), ("replace", "second")])
async def test_duplicates_by_policy(url: str, duplicates: Any, left: str) -> None:
    async with durable_storage(url, duplicates=duplicates, upsert=True) as storage:
        calls = Calls(storage.callbacks(), Turn())
        for text in ("first", "second"):
            await calls.store_message(message("m", text))
        await calls.mutate_message(message("new"))
        assert [(found.id, str(found.content)) for found in await calls.fetch("message")] == [
            ("m", left),
            ("new", "hello"),
        ]


async def test_groups_are_replaced_atomically(storage: DurableStorage, calls: Calls) -> None:
    """A refused replacement does not change the group."""
    for number in range(4):
        await calls.store_tool_call(tool_call(f"call_{number}"))
    await calls.replace_tool_call_group(["call_0", "call_1"], [tool_call("summary", "both")])
    assert await calls.ids("tool_call") == ["call_2", "call_3", "summary"]
    with pytest.raises(TurnStorageDuplicateId):
        await calls.replace_tool_call_group(["call_2"], [tool_call("new"), tool_call("summary", "other")])
    assert await calls.ids("tool_call") == ["call_2", "call_3", "summary"]


# --------------------------------------------------------------------------------------------------- 45: instructions


async def test_check_45_instructions_are_identified_by_key_or_text(calls: Calls) -> None:
    for value in ("a", Tokenizable("b"), "c", Tokenizable("d", key="k"), "a", Tokenizable("a"), "b"):
        await calls.store_standing_instruction(value)
    assert await calls.ids("standing_instruction") == ["a", "b", "c", "d"]
    await calls.delete_standing_instruction(Tokenizable("a"))
    await calls.delete_standing_instruction("b")
    assert await calls.ids("standing_instruction") == ["c", "d"]
    await calls.store_standing_instruction("e")
    await calls.mutate_standing_instruction(Tokenizable("D", key="k"))
    assert await calls.ids("standing_instruction") == ["c", "D", "e"], "in its place"
    await calls.mutate_standing_instruction("f")
    await calls.mutate_standing_instruction("c")
    assert await calls.ids("standing_instruction") == ["c", "D", "e", "f"], "without a key: as if stored"
    await calls.delete_standing_instruction("d")
    assert await calls.ids("standing_instruction") == ["c", "D", "e", "f"], "no instruction has this text any more"
    await calls.delete_standing_instruction("D")
    assert await calls.ids("standing_instruction") == ["c", "e", "f"], "by text, though it has a key"
    await calls.store_standing_instruction("a")
    assert await calls.ids("standing_instruction") == ["c", "e", "f", "a"]


# ------------------------------------------------------------------------------------------------------ custom readers


async def test_readers_with_a_descriptor_are_not_copied(url: str) -> None:
    """This requires a registered resolver; artifacts keep their subclass."""

    class Remote(InMemoryMediaReader):
        def describe(self) -> Descriptor:
            return Descriptor(tag="media:remote", locator={"n": 7})

    class Table(SpooledArtifact):
        pass

    resolvers, artifacts = Resolvers(), ArtifactTypes()
    resolvers.media("media:remote", lambda locator: Remote(b"x" * locator["n"]))
    artifacts.register("table", Table)
    async with open_storage(url, declare=FAMILIES) as kernel:
        async with durable_storage(kernel, resolvers=resolvers, artifacts=artifacts) as storage:
            calls = Calls(storage.callbacks(), Turn())
            await calls.store_message(message(attachments=[image(Remote(b"once"))]))
            await calls.store_retrievable(retrievable("r", Table(InMemorySpoolReader(b"a\tb"))))
            assert await (await calls.fetch("message"))[0].attachments[0].as_bytes() == b"x" * 7
            [found] = await calls.fetch("retrievable")
            assert type(found.content) is Table
            assert await found.content.as_string() == "a\tb"
            with pytest.raises(InvalidValue, match="register"):
                await calls.store_retrievable(
                    retrievable("s", type("Other", (SpooledArtifact,), {})(InMemorySpoolReader(b"")))
                )
        async with durable_storage(kernel) as storage:
            await Calls(storage.callbacks(), Turn("t", thread="b")).store_message(
                message(attachments=[image(Remote(b"drained"))])
            )
            [found] = await Calls(storage.callbacks(), Turn(thread="b")).fetch("message")
            assert await found.attachments[0].as_bytes() == b"drained"


async def test_wrong_calls_are_refused_and_change_nothing(storage: DurableStorage, calls: Calls) -> None:
    for call in (
        calls.store_message("text"),
        calls.store_message(memory()),
        calls.mutate_thought(None),
        calls.delete_message(message()),
        calls.store_standing_instruction(""),
        calls.store_thought(thought(payload={"x": object()}, replay_compatibility="p")),
        calls.store_media_bytes("x", 7),
    ):
        with pytest.raises(InvalidValue):
            await call
    assert [await calls.ids(kind) for kind in FETCHES] == [[]] * len(FETCHES)
    with pytest.raises(StorageClosed):
        await Calls(durable_storage("memory:").callbacks(), Turn()).fetch("message")
