"""Laws of find and count: the matching records in order, each exactly once, page by page."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.kernel.subject import law
from keelbolt.errors import BadCursor, CommitRefused, InvalidRequest, NoIndex
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.records import (
    Count,
    Delete,
    Fields,
    Insert,
    Page,
    Patch,
    Put,
    Query,
    Record,
    Scalar,
    Take,
    Version,
)
from keelbolt.kernel.work import Enqueue

TEXTS = ("", " ", "A", "B", "a", "aa", "ab", "b", "z", "~", "ß", "é", "世", "界", "\uffff", "🐚", "\U0010ffff")
WHOLES = (-(2**63), -(2**40), -256, -255, -2, -1, 0, 1, 2, 127, 128, 255, 256, 65536, 2**53, 2**53 + 1, 2**63 - 1)
REALS = (-1e308, -65536.5, -2.0, -1.5, -1.0, -1e-9, -5e-324, 0.0, 5e-324, 1e-9, 0.1, 0.5, 1.0, 1.5, 2.0, 1e10, 1e308)


async def sorted_by(kernel: Kernel, name: str, values: tuple[Scalar, ...]) -> None:
    """These sorted values are found in this order in both directions, and ranges have the right bounds."""
    shuffled = sorted(range(len(values)), key=lambda n: (n * 7919) % 104_729)
    await kernel.commit(P, *(Put("typed", f"k{n:03}", b"", {name: values[n]}) for n in shuffled))
    for newest_first in (False, True):
        query = Query("typed", order=name, newest_first=newest_first)
        answer = [record.fields.get(name) for record in await found(kernel, query, limit=4)]
        equal(answer, list(reversed(values) if newest_first else values), f"{name}, newest first: {newest_first}")
        for low, high in itertools.combinations(range(0, len(values), 2), 2):
            query = Query("typed", order=name, since=values[low], until=values[high], newest_first=newest_first)
            wanted = [f"k{n:03}" for n in range(low, high)]
            equal(sorted(await keys(kernel, query)), wanted, f"{name} from {values[low]!r} to {values[high]!r}")


@law()
async def strings_are_ordered_by_code_points(kernel: Kernel) -> None:
    """Strings are ordered by the code points of their characters, in every script and locale."""
    await sorted_by(kernel, "text", TEXTS)


@law()
async def integers_are_ordered_by_value(kernel: Kernel) -> None:
    """Integers are ordered by value, negative ones and the limits of 64 bits included."""
    await sorted_by(kernel, "whole", WHOLES)


@law()
async def floats_are_ordered_by_value(kernel: Kernel) -> None:
    """Floats are ordered by value, negative and very small ones included."""
    await sorted_by(kernel, "real", REALS)


@law()
async def keys_are_ordered_by_code_points(kernel: Kernel) -> None:
    """Without an order, records come in the order of their keys, by code points."""
    names = sorted([*filter(None, TEXTS), "k" * 199, "k" * 200, "kk", "k10", "k2", "K"])
    await kernel.commit(P, *(Put("things", name, b"", {"state": "a"}) for name in reversed(names)))
    for newest_first, query in itertools.product((False, True), (Query("things"), Query("things", {"state": "a"}))):
        directed = Query(query.collection, query.equal, newest_first=newest_first)
        wanted = list(reversed(names) if newest_first else names)
        equal(await keys(kernel, directed, limit=4), wanted, f"the keys of {directed}")


@law()
async def long_strings_come_exactly_once(kernel: Kernel) -> None:
    """Strings and keys that differ only after their first 200 bytes come exactly once, and others in order."""
    long = [f"{'m' * 300}{n}" for n in range(12)]
    texts = ["a", "m" * 150, *long, "n", "z" * 300]
    await kernel.commit(P, *(Put("typed", text, b"", {"text": text}) for text in texts))
    await kernel.commit(P, *(Put("things", text, b"") for text in texts))
    for limit, newest_first in itertools.product((1, 3, 5, 50), (False, True)):
        query = Query("typed", order="text", newest_first=newest_first)
        answer = await keys(kernel, query, limit=limit)
        equal(sorted(answer), sorted(texts), f"the texts with pages of {limit}")
        short = [text for text in answer if text not in long]
        equal(short, sorted(short, reverse=newest_first), "the order of texts that differ early")
        answer = await keys(kernel, Query("things", newest_first=newest_first), limit=limit)
        equal(sorted(answer), sorted(texts), f"the keys with pages of {limit}")


@law()
async def filters_compare_whole_strings(kernel: Kernel) -> None:
    """A filter compares whole strings, also those that differ only after their first 200 bytes."""
    owner = "o" * 500
    await kernel.commit(
        P, Put("counted", "a", b"", {"owner": owner + "1"}), Put("counted", "b", b"", {"owner": owner + "2"})
    )
    equal(await keys(kernel, Query("counted", {"owner": owner + "1"})), ["a"], "the key of the first owner")
    equal(await keys(kernel, Query("counted", {"owner": owner})), [], "the keys of an unknown owner")


@law()
async def none_is_a_distinct_value(kernel: Kernel) -> None:
    """A filter for None finds None; in an order None precedes all values; it is not the empty string or 0."""
    await kernel.commit(
        P,
        Put("things", "none", b"", {"rank": None}),
        Put("things", "missing", b""),
        Put("things", "empty", b"", {"state": "", "rank": 0}),
        Put("things", "low", b"", {"state": "a", "rank": -9}),
    )
    equal(await keys(kernel, Query("things", {"state": None})), ["missing", "none"], "those without a state")
    equal(await keys(kernel, Query("things", {"state": ""})), ["empty"], "those with an empty state")
    answer = await keys(kernel, Query("things", order="rank"), limit=1)
    equal((sorted(answer[:2]), answer[2:]), (["missing", "none"], ["low", "empty"]), "the order of ranks")
    answer = await keys(kernel, Query("things", order="rank", newest_first=True), limit=1)
    equal((sorted(answer[2:]), answer[:2]), (["missing", "none"], ["empty", "low"]), "the order, newest first")
    equal(await keys(kernel, Query("things", order="rank", since=-9)), ["low", "empty"], "those from a rank on")


@law()
async def flags_filter(kernel: Kernel) -> None:
    """True, False and None are three different values of a filter."""
    flags: dict[str, bool | None] = {"t": True, "f": False, "n": None}
    await kernel.commit(P, *(Put("typed", key, b"", {"flag": flag, "text": key}) for key, flag in flags.items()))
    for key, flag in flags.items():
        equal(await keys(kernel, Query("typed", {"flag": flag}, "text")), [key], f"those with the flag {flag}")


# -------------------------------------------------------------------------------------------------------- counting


@law()
async def declared_counters_are_exact(kernel: Kernel) -> None:
    """With a declared counter, count is exact after every kind of write, refused ones included, beyond any cap."""

    async def check(when: str) -> None:
        records = [r for r in await kernel.get_many(P, "counted", [f"k{n}" for n in range(40)]) if r is not None]
        equal(await kernel.count(P, Query("counted"), cap=3), Count(len(records), exact=True), f"all, {when}")
        for state, owner in itertools.product(("a", "b", None), ("x", "y", None)):
            of_state = [record for record in records if record.fields.get("state") == state]
            found_ = await kernel.count(P, Query("counted", {"state": state}), cap=3)
            equal(found_, Count(len(of_state), exact=True), f"state {state}, {when}")
            both = [record for record in of_state if record.fields.get("owner") == owner]
            found_ = await kernel.count(P, Query("counted", {"owner": owner, "state": state}), cap=3)
            equal(found_, Count(len(both), exact=True), f"state {state} and owner {owner}, {when}")

    await check("at the start")
    rows = [Put("counted", f"k{n}", b"", {"state": "ab"[n % 2], "owner": "xy"[n % 4 // 2]}) for n in range(30)]
    await kernel.commit(P, *rows)
    await check("after puts")
    await kernel.commit(P, *rows[:10], Put("counted", "k11", b"", {"state": "b"}), Put("counted", "k12", b""))
    await check("after puts over records")
    await kernel.commit(P, *(Patch("counted", f"k{n}", {"state": "a"}) for n in range(5)))
    await kernel.commit(P, Patch("counted", "k6", {"rank": 1}), Patch("counted", "k7", {"owner": None}))
    await check("after patches")
    await kernel.commit(P, Delete("counted", "k1"), Delete("counted", "k99"), Take("counted", "k2"))
    await check("after deletes")
    commits = [kernel.commit(P, Insert("counted", f"k{n % 6 + 30}", b"", {"state": "b"})) for n in range(12)]
    ends = await asyncio.gather(*commits, return_exceptions=True)
    equal(sum(isinstance(end, CommitRefused) for end in ends), 6, "the refused inserts")
    await check("after a race of inserts")
    wrong = kernel.commit(P, Delete("counted", "k3"), Version("counted", "k4", 99))
    await asyncio.gather(wrong, return_exceptions=True)
    await check("after a refused delete")
    other = await kernel.count("q", Query("counted"))
    equal(other, Count(0, exact=True), "the records of another partition")


@law()
async def without_a_counter_count_stops_at_its_cap(kernel: Kernel) -> None:
    """Without a counter, count is exact below the cap and marked as at-least at the cap."""
    await kernel.commit(P, *(Put("things", f"k{n:02}", b"", {"rank": n, "state": "ab"[n % 2]}) for n in range(20)))
    equal(await kernel.count(P, Query("things")), Count(20, exact=True), "all")
    equal(await kernel.count(P, Query("things"), cap=7), Count(7, exact=False), "all, up to 7")
    equal(await kernel.count(P, Query("things", {"state": "a"}), cap=11), Count(10, exact=True), "one state")
    equal(await kernel.count(P, Query("things", {"state": "a"}), cap=9), Count(9, exact=False), "one state, up to 9")
    ranged = Query("things", order="rank", since=5, until=15, newest_first=True)
    equal(await kernel.count(P, ranged), Count(10, exact=True), "a range")
    equal(await kernel.count(P, ranged, cap=4), Count(4, exact=False), "a range, up to 4")
    await kernel.commit(P, *(Put("counted", f"k{n}", b"", {"state": "a", "rank": n}) for n in range(10)))
    some = await kernel.count(P, Query("counted", {"state": "a"}, "rank", since=5), cap=3)
    expect(some == Count(3, exact=False), f"the count of a range is that of the whole counter: {some}")


# ----------------------------------------------------------------------------------------------------------------- find


P = "p"


async def pages(kernel: Kernel, query: Query, *, limit: int = 50, partition: str = P) -> AsyncIterator[Page]:
    cursor = None
    while True:
        page = await kernel.find(partition, query, limit=limit, cursor=cursor)
        expect(len(page.records) <= limit, f"a page of {len(page.records)} records for a limit of {limit}")
        yield page
        await asyncio.sleep(0)
        cursor = page.cursor
        if cursor is None:
            return


async def found(kernel: Kernel, query: Query, *, limit: int = 50, partition: str = P) -> list[Record]:
    return [record async for page in pages(kernel, query, limit=limit, partition=partition) for record in page.records]


async def keys(kernel: Kernel, query: Query, *, limit: int = 50, partition: str = P) -> list[str]:
    return [record.key for record in await found(kernel, query, limit=limit, partition=partition)]


async def fill(kernel: Kernel, count: int = 36) -> list[Record]:
    """Write records of every combination, with many equal values, in an order that no index has."""
    rows: dict[str, Fields] = {
        f"k{(n * 7) % count:03}": {"state": "ab"[n % 2], "owner": "xyz"[n % 3], "rank": n % 5 - 2} for n in range(count)
    }
    await kernel.commit(P, *(Put("things", key, key.encode(), fields) for key, fields in rows.items()))
    return [Record("things", key, 1, key.encode(), fields) for key, fields in sorted(rows.items())]


@law()
async def find_returns_exactly_the_matching_records(kernel: Kernel) -> None:
    """For every index, filter, range, direction and page size, find returns exactly the matching records, once each."""
    rows = await fill(kernel)
    ranges = [(None, None), (-1, None), (None, 1), (-1, 2), (0, 0), (2, -2), (-9, 9), (3, None)]
    for state, owner in itertools.product("ab", "xyz"):
        for (since, until), newest_first in itertools.product(ranges, (False, True)):
            query = Query("things", {"state": state, "owner": owner}, "rank", since, until, newest_first)
            wanted = {row.key for row in rows if matches(row, query)}
            answer = await found(kernel, query, limit=3)
            equal(sorted(record.key for record in answer), sorted(wanted), f"the keys that {query} finds")
            ranks = [record.fields["rank"] for record in answer]
            equal(ranks, sorted(ranks, key=rank_of, reverse=newest_first), f"the order of {query}")
    for limit, newest_first in itertools.product((1, 2, 5, 36, 100), (False, True)):
        by_key = sorted((row.key for row in rows), reverse=newest_first)
        equal(await keys(kernel, Query("things", newest_first=newest_first), limit=limit), by_key, "all, by key")
        of_state = [key for key in by_key if dict(rows_by_key(rows))[key].fields["state"] == "a"]
        query = Query("things", {"state": "a"}, newest_first=newest_first)
        equal(await keys(kernel, query, limit=limit), of_state, "those of one state, by key")


def matches(row: Record, query: Query) -> bool:
    rank = row.fields["rank"]
    assert isinstance(rank, int)
    return (
        all(row.fields.get(name) == value for name, value in query.equal.items())
        and (query.since is None or rank >= int(query.since))
        and (query.until is None or rank < int(query.until))
    )


def rank_of(value: object) -> int:
    assert isinstance(value, int)
    return value


def rows_by_key(rows: list[Record]) -> list[tuple[str, Record]]:
    return [(row.key, row) for row in rows]


@law()
async def found_records_are_complete(kernel: Kernel) -> None:
    """A found record has the same key, version, body and fields as get returns."""
    await fill(kernel)
    await kernel.commit(P, Patch("things", "k001", {"rank": 100}))
    for record in await found(kernel, Query("things", order="rank"), limit=7):
        equal(record, await kernel.get(P, "things", record.key), "the found record")


@law()
async def pages_do_not_lose_equal_values(kernel: Kernel) -> None:
    """Records with the same value of the order come exactly once, wherever among them a page ends."""
    await kernel.commit(P, *(Put("things", f"k{n:02}", b"", {"rank": 1}) for n in range(23)))
    for limit, newest_first in itertools.product((1, 2, 3, 7, 22, 23, 24), (False, True)):
        answer = await keys(kernel, Query("things", order="rank", newest_first=newest_first), limit=limit)
        equal(sorted(answer), [f"k{n:02}" for n in range(23)], f"the keys with pages of {limit}")


@law()
async def the_last_page_has_no_cursor(kernel: Kernel) -> None:
    """The cursor is None on the last page and only there; a query that matches nothing has one empty page."""
    await kernel.commit(P, *(Put("things", f"k{n}", b"", {"rank": n}) for n in range(6)))
    for limit, count in ((1, 6), (2, 3), (3, 2), (4, 2), (6, 1), (7, 1)):
        sizes = [len(page.records) async for page in pages(kernel, Query("things", order="rank"), limit=limit)]
        equal(len(sizes), count, f"the number of pages of {limit}")
        expect(all(sizes), f"an empty page among {sizes}")
    page = await kernel.find(P, Query("things", {"state": "none"}))
    equal((page.records, page.cursor), ((), None), "a page of nothing")


@law()
async def the_start_of_a_listing_stays_the_same(kernel: Kernel) -> None:
    """started_at is when the first page was read, on every page."""
    await fill(kernel)
    started = []
    async for page in pages(kernel, Query("things"), limit=10):
        started.append(page.started_at)
        await asyncio.sleep(0.002)
    equal(len(set(started)), 1, "the number of different times")
    later = await kernel.find(P, Query("things"))
    expect(later.started_at > started[0] > 1_500_000_000_000_000, f"{later.started_at} after {started[0]}")


@law()
async def a_cursor_survives_inserts_and_deletes(kernel: Kernel) -> None:
    """Records that match throughout come exactly once while others are inserted and deleted, the cursor's own too."""
    for newest_first in (False, True):
        stay = [f"s{n:02}" for n in range(30)]
        await kernel.commit(P, *(Put("things", key, b"", {"rank": n // 4}) for n, key in enumerate(stay)))
        await kernel.commit(P, *(Put("things", f"t{n:02}", b"", {"rank": n // 4}) for n in range(30)))
        answer: list[str] = []
        number = 0
        async for page in pages(kernel, Query("things", order="rank", newest_first=newest_first), limit=5):
            answer += [record.key for record in page.records]
            last = page.records[-1]
            gone = [record.key for record in page.records if record.key[0] == "t"]
            number += 1
            new = [Put("things", f"n{number}", b"", last.fields), Put("things", f"m{number}", b"", {"rank": -5})]
            await kernel.commit(P, *new, *(Delete("things", key) for key in gone))
        equal(sorted(key for key in answer if key[0] == "s"), stay, "the records that stayed")
        equal(len(set(answer)), len(answer), "the number of different records")
        for record in await found(kernel, Query("things")):
            await kernel.commit(P, Delete("things", record.key))


@law()
async def a_cursor_survives_changes_of_the_order(kernel: Kernel) -> None:
    """While some records move in the order, those that do not move still come exactly once."""
    await kernel.commit(P, *(Put("things", f"k{n:02}", b"", {"rank": n}) for n in range(40)))
    answer: list[str] = []
    async for page in pages(kernel, Query("things", order="rank"), limit=6):
        answer += [record.key for record in page.records]
        moving = [Patch("things", f"k{n:02}", {"rank": (n * 13 + len(answer)) % 60}) for n in range(0, 40, 2)]
        await kernel.commit(P, *moving)
    stay = [f"k{n:02}" for n in range(1, 40, 2)]
    equal(sorted(key for key in answer if key in stay), stay, "the records that did not move")


@law()
async def paging_beside_writers_is_exact(kernel: Kernel) -> None:
    """Under continuous writes, a listing returns each unchanged record exactly once."""
    await kernel.commit(P, *(Put("things", f"s{n:03}", b"", {"rank": n % 10}) for n in range(100)))
    done = False

    async def churn(name: str) -> None:
        number = 0
        while not done:
            number += 1
            key = f"{name}{number % 20}"
            await kernel.commit(P, Put("things", key, b"", {"rank": number % 10}))
            if number % 3 == 0:
                await kernel.commit(P, Delete("things", key))
            await asyncio.sleep(0)

    async def read() -> None:
        nonlocal done
        for newest_first in (False, True) * 2:
            query = Query("things", order="rank", newest_first=newest_first)
            answer = [key for key in await keys(kernel, query, limit=7) if key[0] == "s"]
            equal(sorted(answer), [f"s{n:03}" for n in range(100)], "the records that stayed")
        done = True

    await asyncio.gather(churn("x"), churn("y"), read())


@law()
async def find_sees_every_change_of_a_field(kernel: Kernel) -> None:
    """After any kind of write, a record is found under its new values at once, and no longer under its old ones."""
    await kernel.commit(P, Put("things", "a", b"", {"state": "new", "rank": 1}))
    for write in (
        Patch("things", "a", {"state": "run"}),
        Put("things", "a", b"", {"state": "done", "rank": 1}),
        Put("things", "a", b"", {"rank": 1}),
    ):
        before = await kernel.get(P, "things", "a")
        await kernel.commit(P, write)
        assert before is not None
        equal(await keys(kernel, Query("things", {"state": before.fields.get("state")})), [], f"the old place: {write}")
        equal(
            await keys(kernel, Query("things", {"state": write.fields.get("state")})), ["a"], f"the new place: {write}"
        )
        equal(await keys(kernel, Query("things", order="rank", since=1)), ["a"], f"the place that stayed: {write}")
    await kernel.commit(P, Delete("things", "a"))
    equal(await keys(kernel, Query("things")), [], "the records found after the delete")


@law()
async def a_query_needs_its_index(kernel: Kernel) -> None:
    """A query whose filters and order are not exactly those of a declared index raises NoIndex, in find and count."""
    for query in (
        Query("plain"),
        Query("things", {"owner": "x"}),
        Query("things", {"state": "a", "owner": "x"}),
        Query("things", {"state": "a"}, "rank"),
        Query("things", {"rank": 1}),
        Query("things", {}, "state"),
        Query("things", {"state": "a", "owner": "x", "rank": 1}, "rank"),
    ):
        with raises(NoIndex):
            await kernel.find(P, query)
        with raises(NoIndex):
            await kernel.count(P, query)
    with raises(InvalidRequest):
        await kernel.find(P, Query("things", {"undeclared": 1}))
    with raises(InvalidRequest):
        await kernel.find(P, Query("things", order="undeclared"))


@law()
async def a_cursor_belongs_to_its_query(kernel: Kernel) -> None:
    """A cursor of another query, direction, collection, partition or listing, or a damaged one, raises BadCursor."""
    for partition in (P, "q"):
        await kernel.commit(partition, *(Put("things", f"k{n}", b"", {"rank": n, "state": "a"}) for n in range(9)))
        await kernel.commit(partition, *(Enqueue("runs", f"k{n}") for n in range(9)))
    await kernel.commit(P, *(Put("passing", f"k{n}", b"", {"rank": n}) for n in range(9)))
    query = Query("things", order="rank")
    page = await kernel.find(P, query, limit=3)
    work = await kernel.list_work(P, "runs", state="waiting", limit=3)
    assert page.cursor is not None
    assert work.cursor is not None
    for other in (
        Query("things", order="rank", newest_first=True),
        Query("things", order="rank", since=1),
        Query("things", order="rank", until=8),
        Query("things"),
        Query("things", {"state": "a"}),
        Query("passing", order="rank"),
    ):
        with raises(BadCursor):
            await kernel.find(P, other, cursor=page.cursor)
    with raises(BadCursor):
        await kernel.find("q", query, cursor=page.cursor)
    for damaged in ("", "x", "!!!!", "世界", page.cursor[:-4], page.cursor[:10], "A" + page.cursor, work.cursor):
        with raises(BadCursor):
            await kernel.find(P, query, cursor=damaged)
    for foreign in (page.cursor, "x", ""):
        with raises(BadCursor):
            await kernel.list_work(P, "runs", state="waiting", cursor=foreign)
    with raises(BadCursor):
        await kernel.list_work(P, "runs", state="dead", cursor=work.cursor)
    with raises(BadCursor):
        await kernel.list_work("q", "runs", state="waiting", cursor=work.cursor)
    expect((await kernel.find(P, query, cursor=page.cursor)).records, "the cursor of the query returned no records")
