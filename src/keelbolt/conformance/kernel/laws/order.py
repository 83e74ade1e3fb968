"""Laws of order and number: how values are sorted, and how records are counted."""

from __future__ import annotations

import asyncio
import itertools

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.kernel.laws.find import P, found, keys
from keelbolt.conformance.kernel.subject import law
from keelbolt.errors import CommitRefused
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.records import Count, Delete, Insert, Patch, Put, Query, Scalar, Take, Version

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
