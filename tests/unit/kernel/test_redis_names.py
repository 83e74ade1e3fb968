"""The names of a store are listed in order, and every slot of a cluster has a hash tag."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from redis.crc import key_slot

from keelbolt.kernel.redis.export import Name, Names
from keelbolt.kernel.redis.layout import SLOTS, Layout
from keelbolt.kernel.redis.servers import RedisServers

LAYOUT = Layout("space")


class Listing:
    """A server that lists its keys unordered, and some of them twice."""

    layout = LAYOUT

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = keys

    async def keys(self, _pattern: bytes) -> AsyncIterator[bytes]:
        for key in self._keys:
            yield key


def test_every_slot_has_a_journal_of_its_own() -> None:
    journals = [LAYOUT.journal(slot) for slot in range(SLOTS)]
    assert [key_slot(journal) for journal in journals] == list(range(SLOTS))
    assert all(LAYOUT.parse(journal + b"mark") is None for journal in journals)


def test_a_partition_is_never_taken_for_a_journal() -> None:
    for name in ("%.17", "%", "%25", "a%.1"):
        assert LAYOUT.parse(LAYOUT.base(name) + b"r/c/k") == (name, b"r/c/k")


async def test_names_come_once_and_in_order() -> None:
    keys = [LAYOUT.base(f"p{n % 3}") + f"r/note/{n}/x".encode() for n in range(5000)]
    keys += [LAYOUT.base("p1") + rest for rest in (b"b/ff", b"s/log/a/b", b"w/jobs/1", b"l/log/a/b", b"ready/jobs/")]
    keys += [LAYOUT.registry + b"catalog", LAYOUT.journal(7) + b"touched"]
    names = Names()
    await names.gather(cast("RedisServers", Listing([*keys, *reversed(keys)])))
    found: list[Name] = [name async for page in names.pages("record") for name in page]
    assert found == sorted((f"p{n % 3}", "note", f"{n}/x") for n in range(5000))
    rest = [name async for page in names.pages("record", found[2999]) for name in page]
    assert rest == found[3000:]
    assert [name async for page in names.pages("stream") for name in page] == [("p1", "log", "a/b")]
    assert [name async for page in names.pages("blob") for name in page] == [("p1", "", "ff")]
    assert [names.count(kind) for kind in ("record", "stream", "work", "blob")] == [5000, 1, 1, 1]
    assert sorted(names.partitions()) == ["p0", "p1", "p2"]
    names.close()
