"""Whose things they are: nothing is stored for nobody, and nobody sees another's."""

from __future__ import annotations

import pytest

from keelbolt.errors import (
    TurnStorageScopeMissing,
)
from keelbolt.turns.durable import DurableStorage, TurnScope, durable_storage
from keelbolt.turns.registry import Registry
from tests.integration.turns.stage import (
    FETCHES,
    MAKE,
    PLAIN,
    Calls,
    Turn,
    memory,
    message,
    one_of_each,
)


async def test_check_42_nobody_sees_anothers(storage: DurableStorage) -> None:
    """Equal ids of two tenants, and of two threads, are different things."""
    here, elsewhere, thread = (
        Calls(storage.callbacks(), turn) for turn in (Turn(), Turn(tenant="a/b%~"), Turn(thread="another"))
    )
    for kind, value in one_of_each():
        await here.do("store", kind, value)
    shared = {"memory", "standing_instruction"}
    for kind in FETCHES:
        assert await elsewhere.ids(kind) == []
        assert bool(await thread.ids(kind)) == (kind in shared)
    for kind in PLAIN:
        await elsewhere.do("store", kind, MAKE[kind]("x"))
        for calls in (here, thread):
            assert "x" not in await calls.ids(kind)
            await calls.do("delete", kind, "x")
        assert await elsewhere.ids(kind) == ["x"]
    assert await Calls(storage.callbacks(), Turn(agent="other")).ids("memory") == []


@pytest.mark.parametrize(
    "scope", [None, "acme", {"tenant": "acme"}, {"tenant": "", "thread": "t"}, {"tenant": 1, "thread": "t"}]
)
async def test_check_42_no_scope_no_storage(storage: DurableStorage, scope: object) -> None:
    """Nothing is ever stored for nobody."""
    turn = Turn()
    turn.stash = Registry({"scope": scope} if scope is not None else {})
    calls = Calls(storage.callbacks(), turn)
    for call in (calls.fetch_messages(), calls.store_message(message()), calls.store_media_bytes("x", b"")):
        with pytest.raises(TurnStorageScopeMissing) as raised:
            await call
        assert (raised.value.code, raised.value.status) == ("E_STORAGE_SCOPE_MISSING", 400)
    with pytest.raises(TurnStorageScopeMissing):
        async with storage.unit_of_work(turn):
            pass


async def test_scope_of_ones_own(url: str) -> None:
    async with durable_storage(url, scope=lambda ctx: TurnScope("acme", ctx.id), memories="thread") as storage:
        await Calls(storage.callbacks(), Turn("a")).store_memory(memory())
        assert await Calls(storage.callbacks(), Turn("a")).ids("memory") == ["f1"]
        assert await Calls(storage.callbacks(), Turn("b")).ids("memory") == []
