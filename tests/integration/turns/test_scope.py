"""Scopes: every record has a scope, and scopes are isolated."""

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


async def test_check_42_scopes_are_isolated(storage: DurableStorage) -> None:
    """Equal ids of two tenants, or of two threads, are different records."""
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
    """Nothing is stored without a scope."""
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


async def test_a_custom_scope(url: str) -> None:
    async with durable_storage(url, scope=lambda ctx: TurnScope("acme", ctx.id), memories="thread") as storage:
        await Calls(storage.callbacks(), Turn("a")).store_memory(memory())
        assert await Calls(storage.callbacks(), Turn("a")).ids("memory") == ["f1"]
        assert await Calls(storage.callbacks(), Turn("b")).ids("memory") == []
