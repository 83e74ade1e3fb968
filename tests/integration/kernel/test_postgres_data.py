"""Data in PostgreSQL: long keys, counters of several processes, HOT updates, readable views."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keelbolt.errors import CommitRefused
from keelbolt.kernel import (
    Append,
    Attach,
    Collection,
    Draft,
    Enqueue,
    Head,
    Index,
    Insert,
    Kernel,
    Put,
    Query,
    Replace,
    open_storage,
)
from keelbolt.kernel.postgres.rows import BEGINNING_BYTES, fit
from keelbolt.testing.postgres import OwnPostgres, own_postgres

ROOT = Path(__file__).parents[3]
FAMILIES = (
    Collection(
        "doc",
        fields={"state": str, "rank": int},
        indexes=(Index("by_state", ("state",), "rank"), Index("by_key")),
        counters=((), ("state",)),
    ),
)
SAME = "s" * 250  # two long keys with a common prefix
LONG_KEYS = {
    "201 bytes": "k" * 201,
    "the longest": "k" * 4000,
    "the longest, four bytes each": "😀" * 4000,
    "200 bytes": "k" * 200,
    "beginning with the mark": "\x01short",
    "only the mark": "\x01",
    "like a shortened one": "\x01" + "k" * 25 + "0" * 64,
    "begins like another": SAME + "a",
    "begins like the other": SAME + "b",
    "quotes and commas": "',\"{}\\ \n\t%$1",
}


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


@pytest.fixture
def url(server: OwnPostgres) -> Iterator[str]:
    with server.database() as made:
        yield made


# ----------------------------------------------------------------------------------------------------------- long keys


async def test_long_keys_in_every_noun(url: str) -> None:
    """Records, streams, dedupe keys, work and holders of blobs can have long keys, which stay distinct."""
    keys = list(LONG_KEYS.values())
    async with open_storage(url, declare=FAMILIES) as kernel:
        blob = await kernel.stage_blob("p", b"bytes")
        for key in keys:
            await kernel.commit(
                "p",
                Insert("doc", key, key.encode(), {"state": "new", "rank": len(key)}),
                Append("log", key, (Draft("a", key.encode(), dedupe=key),)),
                Enqueue("jobs", key),
                Attach(blob.digest, key),
            )
        records = await kernel.get_many("p", "doc", keys)
        assert [(record.key, record.body.decode()) for record in records if record is not None] == [
            (key, key) for key in keys
        ]
        for key in keys:
            (entry,) = (await kernel.read_log("p", "log", key)).entries
            assert entry.data.decode() == key
            again = await kernel.commit("p", Append("log", key, (Draft("a", b"again", dedupe=key),)))
            assert again.seqs("log", key) == (1,), "its dedupe key was forgotten"
            assert (await kernel.commit("p", Head("log", key, 1))).operations
            with pytest.raises(CommitRefused):
                await kernel.commit("p", Insert("doc", key, b""))
        found = await all_found(kernel, Query("doc", {"state": "new"}, "rank"))
        assert sorted(found) == sorted(keys)
        assert sorted(await all_found(kernel, Query("doc"))) == sorted(keys)
        claims = await kernel.claim("jobs", "w", limit=100)
        assert sorted(claim.key for claim in claims) == sorted(keys)
        assert [item.key for item in (await kernel.list_work("p", "jobs", state="held")).items] != []
        for claim in claims:
            await kernel.commit("p", claim.complete())
            assert await kernel.work("p", "jobs", claim.key) is None
        assert [problem async for problem in kernel.check()] == []


async def test_pages_of_work_with_long_keys_come_to_an_end(url: str) -> None:
    """Paging through items with shortened keys returns each of them once."""
    keys = [*LONG_KEYS.values(), *(f"{SAME}{number}" for number in range(20))]
    async with open_storage(url) as kernel:
        await kernel.commit("p", *(Enqueue("jobs", key) for key in keys))
        seen: list[str] = []
        cursor = None
        for _ in range(len(keys) + 1):
            page = await kernel.list_work("p", "jobs", state="waiting", limit=3, cursor=cursor)
            seen += [item.key for item in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        assert cursor is None
        assert sorted(seen) == sorted(keys)


async def all_found(kernel: Kernel, query: Query) -> list[str]:
    keys: list[str] = []
    cursor = None
    for _ in range(1000):
        page = await kernel.find("p", query, limit=3, cursor=cursor)
        keys += [record.key for record in page.records]
        cursor = page.cursor
        if cursor is None:
            return keys
    raise AssertionError("the pages have no end")


async def test_many_long_fields_in_one_index(url: str) -> None:
    """Fields too large for an index page can still be found, ordered, counted and paged; other commits do not fail."""
    names = tuple(f"f{number:02}" for number in range(12))
    family = Collection(
        "wide",
        fields={**dict.fromkeys(names, str), "rank": int},
        indexes=(Index("all", names, "rank"),),
        counters=(names,),
    )
    one, other = ({name: "\0" + secrets.token_hex(300) for name in names} for _ in range(2))
    async with open_storage(url, declare=[family]) as kernel:
        commits = [
            kernel.commit("p", Insert("wide", f"{number:02}", b"", {**fields, "rank": -number}))
            for fields, numbers in ((one, range(7)), (other, range(10, 13)))
            for number in numbers
        ]
        await asyncio.gather(*commits, kernel.commit("q", Append("log", "s", (Draft("a", b""),))))
        assert await all_found(kernel, Query("wide", one, "rank")) == [f"{number:02}" for number in range(6, -1, -1)]
        newest = Query("wide", other, "rank", newest_first=True)
        assert await all_found(kernel, newest) == ["10", "11", "12"]
        ranged = Query("wide", one, "rank", since=-4, until=-1)
        assert await all_found(kernel, ranged) == ["04", "03", "02"]
        assert (await kernel.count("p", Query("wide", one))).value == 7
        await kernel.commit("p", Put("wide", "00", b"", {**other, "rank": 0}))
        assert (await kernel.count("p", Query("wide", one))).value == 6
        assert (await kernel.count("p", ranged)).value == 3
        assert [problem async for problem in kernel.check()] == []


def test_only_long_entries_are_shortened() -> None:
    """A short first part is stored unchanged, however long the rest; a long one becomes a hash, and the rest stays."""
    short, rest = b"\x20p\0" + b"\x10" + bytes(8) + b"\x01", b"\x20" + b"r" * 2000 + b"\0"
    assert fit(short + rest, 3) == short + rest
    long = b"\x20" + b"\0\xff" * 600 + b"\0" + b"\x20" + b"x" * 200 + b"\0\xfe" + bytes(32)
    fitted = fit(long + b"\x10rest", 2)
    assert fitted.endswith(b"\x10rest")
    assert len(fitted) < BEGINNING_BYTES / 10
    assert fit(fitted, 2) == fitted
    assert fit(long + b"\xfd", 2) == fitted[:-5] + b"\xfd"


# ------------------------------------------------------------------------------------------------- several processes


async def test_counters_of_several_processes_sum_up(url: str) -> None:
    """Four processes insert, move and delete at once: the totals match the records exactly."""
    program = (
        "import asyncio, sys\n"
        "from keelbolt.kernel import Delete, Insert, Patch, open_storage\n"
        "from tests.integration.kernel.test_postgres_data import FAMILIES\n"
        "async def main(url, name):\n"
        "    async with open_storage(url, declare=FAMILIES) as kernel:\n"
        "        keys = [f'{name}-{number}' for number in range(60)]\n"
        "        new = {'state': 'new', 'rank': 1}\n"
        "        await asyncio.gather(*(kernel.commit('p', Insert('doc', key, b'', new)) for key in keys))\n"
        "        old = {'state': 'old'}\n"
        "        await asyncio.gather(*(kernel.commit('p', Patch('doc', key, old)) for key in keys[:20]))\n"
        "        await asyncio.gather(*(kernel.commit('p', Delete('doc', key)) for key in keys[:5]))\n"
        "asyncio.run(main(*sys.argv[1:]))\n"
    )
    async with open_storage(url, declare=FAMILIES) as kernel:
        children = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", program, url, f"process-{number}", cwd=ROOT)
            for number in range(4)
        ]
        assert [await child.wait() for child in children] == [0] * 4
        counts = [
            await kernel.count("p", Query("doc", filters)) for filters in ({}, {"state": "new"}, {"state": "old"})
        ]
        assert [count.value for count in counts] == [220, 160, 60]
        assert all(count.exact for count in counts)
        assert [problem async for problem in kernel.check()] == []


# ---------------------------------------------------------------------------------------------------------- the tables


async def test_updates_are_hot(url: str, server: OwnPostgres) -> None:
    """Replacing a record, appending to a stream and counting update no index: the new row stays on its page."""
    async with open_storage(url, declare=FAMILIES) as kernel:
        for number in range(20):
            await kernel.commit("p", Insert("doc", f"{number}", b"x" * 200, {"state": "new", "rank": 1}))
        for turn in range(1, 31):
            for number in range(20):
                write = Replace("doc", f"{number}", turn, b"y" * 200, {"state": "new", "rank": 1})
                kernel.commit("p", write, Append("log", f"{number}", (Draft("a", b""),)))
            await kernel.flush()
        kernel.commit("p", Insert("doc", "last", b"", {"state": "new", "rank": 1}))
        await kernel.flush()
    updates = {}
    for _ in range(100):  # a backend reports its statistics when it ends
        rows = server.execute(
            "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'keelbolt'", url=url
        )
        updates = {row[0]: (row[1], row[2]) for row in rows}
        if updates["record"][0] >= 600:
            break
        await asyncio.sleep(0.1)
    for table in ("record", "stream"):
        all_of_them, hot = updates[table]
        assert all_of_them >= 500
        assert hot >= 0.8 * all_of_them, f"{table}: {hot} of {all_of_them}"


async def test_views_are_readable_in_sql(url: str, server: OwnPostgres) -> None:
    """The views have readable columns: full keys, times, text where the bytes are text."""
    long = "k" * 3000
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit(
            "p",
            Insert("doc", "a", '{"title": "Grüße"}'.encode(), {"state": "new", "rank": 7}),
            Insert("doc", long, bytes(range(256)), {"state": "old"}),
            Append("log", long, (Draft("said", b"hello"), Draft("raw", b"\x00\xff"))),
        )
    records = server.execute(
        "SELECT partition, collection, key, version, fields::json ->> 'state', text, bytes FROM keelbolt.records "
        "ORDER BY length(key)",
        url=url,
    )
    assert [tuple(row)[:5] for row in records] == [("p", "doc", "a", 1, "new"), ("p", "doc", long, 1, "old")]
    assert records[0][5] == '{"title": "Grüße"}'
    assert (records[1][5], records[1][6]) == (None, 256)
    entries = server.execute(
        "SELECT partition, log, stream, seq, kind, text, bytes, now() - at < interval '1 hour' FROM keelbolt.log "
        "ORDER BY seq",
        url=url,
    )
    assert [tuple(row) for row in entries] == [
        ("p", "log", long, 1, "said", "hello", 5, True),
        ("p", "log", long, 2, "raw", None, 2, True),
    ]


async def test_a_text_body_is_shown_as_text(url: str, server: OwnPostgres) -> None:
    """Non-ASCII UTF-8 is shown as text, and bytes that are not text do not break the view."""
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit(
            "p", Put("doc", "text", "Grüße \\ 😀".encode()), Put("doc", "torn", b"\xff\xfe"), Put("doc", "none", b"")
        )
    rows = server.execute("SELECT key, text FROM keelbolt.records ORDER BY key", url=url)
    assert {row[0]: row[1] for row in rows} == {"none": "", "text": "Grüße \\ 😀", "torn": None}
