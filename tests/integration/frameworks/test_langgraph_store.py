"""Items on Keelbolt's store are found as on LangGraph's in-memory store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from keelbolt.kernel import open_storage
from keelbolt.langgraph import KeelboltStore


def embed(texts: list[str]) -> list[list[float]]:
    """Count letters: texts with the same letters are similar."""
    return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


INDEX: Any = {"dims": 26, "embed": embed, "fields": ["text", "tags[*]"]}


def fill(store: Any) -> None:
    store.put(("users", "1"), "a", {"text": "the cat sat", "n": 1, "tags": ["pets", "home"]})
    store.put(("users", "1"), "b", {"text": "quarterly report", "n": 2, "nested": {"x": [1, 2]}})
    store.put(("users", "1", "deep"), "c", {"text": "cats and dogs", "n": 3})
    store.put(("users", "2"), "d", {"text": "zebra", "n": 4}, index=False)
    store.put(("other",), "e", {"text": "cat", "n": 5})
    store.put(("users", "10"), "f", {"n": 6})
    store.put(("users", "1"), "gone", {"n": 7})
    store.delete(("users", "1"), "gone")


def seen(store: Any) -> list[Any]:
    def keys(found: list[Any]) -> list[Any]:
        return [(item.namespace, item.key, item.value) for item in found]

    def ranked(found: list[Any]) -> list[Any]:
        return [(item.key, None if item.score is None else round(item.score, 4)) for item in found]

    return [
        [item and item.value for item in (store.get(("users", "1"), "a"), store.get(("users", "1"), "gone"))],
        *[
            sorted(keys(store.search(prefix, filter=wanted, limit=50)), key=str)
            for prefix, wanted in (
                ((), None),
                (("users",), None),
                (("users", "1"), None),
                (("users",), {"n": {"$gt": 1, "$lte": 3}}),
                (("users",), {"n": {"$ne": 1}}),
                (("users",), {"nested": {"x": [1, 2]}}),
                (("users",), {"text": "zebra"}),
                (("nothing",), None),
            )
        ],
        ranked(store.search(("users",), query="cat", limit=2)),
        ranked(store.search((), query="report", limit=3, offset=1)),
        ranked(store.search(("users",), query="cat", filter={"n": 3})),
        store.list_namespaces(),
        store.list_namespaces(prefix=("users",), max_depth=2),
        store.list_namespaces(prefix=("users", "*"), suffix=("deep",)),
        store.list_namespaces(suffix=("1",), limit=1),
        store.list_namespaces(limit=2, offset=1),
    ]


def test_searches_equal_the_memory_store(any_url: str) -> None:
    """The results of get, list_namespaces and search by prefix, filter and meaning are equal."""
    expected = InMemoryStore(index=INDEX)
    fill(expected)
    with KeelboltStore(any_url, index=INDEX) as store:
        fill(store)
        assert seen(store) == seen(expected)


async def test_a_batch_reads_before_it_writes(any_url: str) -> None:
    """The last put of a key wins, in one commit; the creation time stays when an item is put again."""
    async with KeelboltStore(any_url) as store:
        await store.aput(("n",), "k", {"v": 0})
        first = await store.aget(("n",), "k")
        results = await store.abatch(
            [
                PutOp(("n",), "k", {"v": 1}),
                GetOp(("n",), "k"),
                PutOp(("n",), "k", {"v": 2}),
                PutOp(("m",), "k", None),
                SearchOp(("n",)),
                ListNamespacesOp((MatchCondition("prefix", ("n",)),)),
            ]
        )
        assert [results[0], results[2], results[3]] == [None, None, None]
        assert results[1].value == {"v": 0}  # type: ignore[union-attr]
        assert [item.value for item in results[4]] == [{"v": 0}]  # type: ignore[union-attr]
        assert results[5] == [("n",)]
        after = await store.aget(("n",), "k")
        assert first is not None
        assert after is not None
        assert after.value == {"v": 2}
        assert after.created_at == first.created_at < after.updated_at


async def test_items_expire_and_reading_refreshes_them(any_url: str) -> None:
    """An item expires after its TTL; a read that refreshes restarts the TTL."""
    second = 1 / 60
    async with KeelboltStore(any_url, ttl={"default_ttl": 1.5 * second, "refresh_on_read": True}) as store:
        await store.aput(("n",), "read", {})
        await store.aput(("n",), "unread", {})
        await store.aput(("n",), "kept", {}, ttl=None)
        for _ in range(4):
            await asyncio.sleep(0.6)
            assert await store.aget(("n",), "read") is not None
        assert await store.aget(("n",), "unread", refresh_ttl=False) is None
        assert {item.key for item in await store.asearch(("n",))} == {"read", "kept"}


async def test_namespaces_of_any_text(any_url: str) -> None:
    """Slashes, wildcards and long labels are plain text; a prefix is a prefix of labels."""
    names = [("a/b",), ("a", "b"), ("a" * 250, "x"), ("a" * 250, "y"), ("a" * 249, "x"), ("%",), ("ä", "~")]
    async with KeelboltStore(any_url) as store:
        for namespace in names:
            await store.aput(namespace, "k", {"of": list(namespace)})
        for namespace in names:
            found = await store.asearch(namespace[:1], limit=50)
            assert {item.namespace for item in found} == {n for n in names if n[:1] == namespace[:1]}
        assert await store.alist_namespaces() == sorted(names)
        with pytest.raises(InvalidNamespaceError):
            await store.aput((), "k", {})
        with pytest.raises(TypeError, match="object"):
            await store.aput(("n",), "k", {"bad": object()})


async def test_tenants_and_open_storages(kept_url: str) -> None:
    async with open_storage(kept_url) as kernel:
        one, other = KeelboltStore(kernel, tenant="one"), KeelboltStore(kernel, tenant="other")
        await one.aput(("n",), "k", {"v": 1})
        assert await other.aget(("n",), "k") is None
        with KeelboltStore(kept_url, tenant="one") as again:
            found = await asyncio.to_thread(again.get, ("n",), "k")
            assert found is not None
            assert found.value == {"v": 1}
