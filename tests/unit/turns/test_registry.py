"""The stash, the sets and the abort."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from keelbolt.errors import InvalidInitialRegistryValue, TurnAborted
from keelbolt.turns import AbortController, InstructionSet, PrimitiveSet, Registry, Tokenizable
from keelbolt.turns.abort import linked
from tests.unit.turns.stage import message


def test_a_stash_has_paths() -> None:
    stash = Registry({"a": {"b": [1]}, "x.y": 1, "empty": {}})
    assert (stash.get("a.b"), stash["a.b"], stash.get("a.c", 5), stash.get("a.b.c")) == ([1], [1], 5, None)
    assert (stash.has("a.b"), "a.c" in stash, stash.get("x.y"), stash.has("x.y")) == (True, False, None, False)
    assert "" not in stash
    stash.set("a.b.c", 2)
    stash.set("n.m", None)
    assert (stash.get("a"), stash.has("n.m"), stash.get("n.m", 7)) == ({"b": {"c": 2}}, True, None)
    assert stash.keys() == ["a.b.c", "x.y", "empty", "n.m"]
    with pytest.raises(KeyError):
        stash["nothing"]
    with pytest.raises(KeyError, match="non-empty"):
        stash.set("", 1)
    wrongs: list[Any] = [[("a", 1)], "text", {1: 2}, {"lock": threading.Lock()}]
    for wrong in wrongs:
        with pytest.raises(InvalidInitialRegistryValue):
            Registry(wrong)
    with pytest.raises(InvalidInitialRegistryValue, match="can't be copied"):
        stash.set("lock", threading.Lock())


def test_a_stash_copies_in_and_out() -> None:
    given = {"a": [1]}
    stash = Registry(given)
    value = [3]
    stash.set("b", value)
    given["a"].append(2)
    value.append(4)
    stash.get("a").append(5)
    stash.all()["a"].append(6)
    assert stash.all() == {"a": [1], "b": [3]}


def test_a_set_of_primitives() -> None:
    one, same = message("a"), message("a")
    held = PrimitiveSet([one, message("b")])
    held.add(one)
    held.add(same)
    assert ([item.id for item in held], len(held), held.get("a"), held.get("x")) == (["a", "b", "a"], 3, one, None)
    assert one in held
    assert message("a") not in held
    assert held.remove_by_id("a") is one
    assert held.remove_by_id("x") is None
    new = message("a")
    assert held.replace_by_id(new) == [same]
    assert [item.id for item in held] == ["b", "a"]
    held.discard(new)
    held.discard(one)
    held.clear()
    assert len(held) == 0


def test_instructions_are_identified_by_key_or_text() -> None:
    held = InstructionSet(["a", Tokenizable("a"), Tokenizable("b", key="k"), "c"])
    assert held.texts() == ["a", "b", "c"]
    held.replace(Tokenizable("B", key="k"))
    held.replace("c")
    held.replace("d")
    assert held.texts() == ["a", "B", "c", "d"]
    assert "a" in held
    assert Tokenizable("other", key="k") in held
    assert 5 not in held
    for gone in (Tokenizable("a"), "c", Tokenizable("?", key="k"), "unknown"):
        held.discard(gone)
    assert (held.texts(), len(held)) == (["d"], 1)


async def test_an_abort_notifies_once_with_its_reason() -> None:
    parent = AbortController()
    child, part = linked(parent.signal)
    other, part_other = linked(parent.signal)
    part_other()
    reasons: list[Any] = []
    parent.signal.on_abort(lambda _reason: reasons.remove("nothing"))
    parent.signal.on_abort(reasons.append)
    waiting = asyncio.ensure_future(child.signal.wait())
    await asyncio.sleep(0)
    parent.signal.raise_if_aborted()
    parent.abort("first")
    parent.abort("second")
    parent.signal.on_abort(reasons.append)
    assert (reasons, child.signal.reason, other.signal.aborted) == (["first", "first"], "first", False)
    assert (await waiting, await child.signal.wait()) == ("first", "first")
    late, _ = linked(parent.signal)
    assert (late.signal.aborted, late.signal.reason) == (True, "first")
    part()
    with pytest.raises(TurnAborted, match="aborted: first"):
        late.signal.raise_if_aborted()
