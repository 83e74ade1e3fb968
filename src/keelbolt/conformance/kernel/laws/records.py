"""Laws of records: versions, each kind of write, reads, and expiry."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.kernel.subject import law, refuses
from keelbolt.errors import CommitRefused
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.records import (
    Absent,
    Delete,
    FieldIn,
    Insert,
    Patch,
    Present,
    Put,
    Query,
    Record,
    Replace,
    Restore,
    Take,
    Version,
)

SOON_SECONDS = 0.1
LATER_SECONDS = 600.0


async def pass_away() -> None:
    await asyncio.sleep(SOON_SECONDS + 0.05)


@law()
async def reads_do_not_return_expired_records(kernel: Kernel) -> None:
    """get, get_many, find and count return a record before it expires, and no longer from then on."""
    await kernel.commit(
        P,
        Put("passing", "kept", b"", {"rank": 1}),
        Put("passing", "later", b"", {"rank": 2}, expires_in=LATER_SECONDS),
        Put("passing", "soon", b"", {"rank": 3}, expires_in=SOON_SECONDS * 3),
    )
    expect(await kernel.get(P, "passing", "soon"), "the record expired too early")
    await asyncio.sleep(SOON_SECONDS * 3 + 0.05)
    expect(await kernel.get(P, "passing", "soon") is None, "get returned an expired record")
    found = await kernel.get_many(P, "passing", ["soon", "kept", "later"])
    equal([record.key if record else None for record in found], [None, "kept", "later"], "the records of get_many")
    for query in (Query("passing"), Query("passing", order="rank"), Query("passing", order="rank", newest_first=True)):
        page = await kernel.find(P, query)
        equal({record.key for record in page.records}, {"kept", "later"}, f"the records of {query}")
        equal((await kernel.count(P, query)).value, 2, f"the count of {query}")


@law()
async def checks_do_not_see_expired_records(kernel: Kernel) -> None:
    """For every check and every write, an expired record does not exist."""
    keys = ("a", "b", "c", "d")
    await kernel.commit(P, *(Put("passing", key, b"old", {"rank": 1}, expires_in=SOON_SECONDS) for key in keys))
    await pass_away()
    await refuses(kernel, P, Version("passing", "a", 1), reason="version", found=0)
    await refuses(kernel, P, FieldIn("passing", "a", "rank", (1,)), reason="present", found=0)
    await refuses(kernel, P, Patch("passing", "a", {"rank": 2}), reason="present", found=0)
    await refuses(kernel, P, Replace("passing", "a", 1, b"new"), reason="version", found=0)
    await refuses(kernel, P, Take("passing", "a"), reason="present", found=0)
    await kernel.commit(P, Absent("passing", "a"))
    await refuses(kernel, P, Present("passing", "a"), reason="present", found=0)
    equal((await kernel.commit(P, Insert("passing", "b", b"new"))).version("passing", "b"), 1, "the inserted version")
    equal((await kernel.commit(P, Put("passing", "c", b"new"))).version("passing", "c"), 1, "the put version")
    record = await kernel.get(P, "passing", "c")
    equal(record.fields.get("rank") if record else 0, None, "a field of the new record")


@law()
async def patch_leaves_the_expiry_alone(kernel: Kernel) -> None:
    """A patched record expires when it would have expired without the patch."""
    await kernel.commit(P, Put("passing", "a", b"", {"rank": 1}, expires_in=SOON_SECONDS * 3))
    await kernel.commit(P, Patch("passing", "a", {"rank": 2}))
    expect(await kernel.get(P, "passing", "a"), "the patched record expired too early")
    await asyncio.sleep(SOON_SECONDS * 3 + 0.05)
    expect(await kernel.get(P, "passing", "a") is None, "the patched record outlived its expiry")


@law()
async def put_and_replace_replace_the_expiry(kernel: Kernel) -> None:
    """Put and Replace replace the expiry: with a new one, or with none."""
    await kernel.commit(P, *(Put("passing", key, b"", expires_in=SOON_SECONDS * 3) for key in ("a", "b", "c")))
    await kernel.commit(
        P,
        Put("passing", "a", b""),
        Replace("passing", "b", 1, b"", expires_in=LATER_SECONDS),
        Put("passing", "d", b"", expires_in=LATER_SECONDS),
    )
    await kernel.commit(P, Put("passing", "d", b"", expires_in=SOON_SECONDS))
    await asyncio.sleep(SOON_SECONDS * 3 + 0.05)
    found = await kernel.get_many(P, "passing", ["a", "b", "c", "d"])
    equal([record.key if record else None for record in found], ["a", "b", None, None], "the remaining records")


@law()
async def sweep_removes_expired_records(kernel: Kernel) -> None:
    """sweep removes expired records, at most ``limit`` at once, and no others."""
    await kernel.commit(
        P,
        *(Put("passing", f"soon{n}", b"", {"rank": n}, expires_in=0.01) for n in range(5)),
        Put("passing", "later", b"", expires_in=LATER_SECONDS),
        Put("passing", "kept", b""),
        Put("plain", "kept", b""),
    )
    await pass_away()
    equal((await kernel.sweep(limit=3)).records, 3, "the number removed by a sweep of at most 3")
    equal((await kernel.sweep(limit=3)).records, 2, "the number removed by the second sweep")
    equal((await kernel.sweep()).records, 0, "the number removed by a third sweep")
    equal((await kernel.stats()).records.get("passing"), 2, "the records that stats counts")
    expect(await kernel.get(P, "passing", "later"), "the sweep removed a record before it expired")
    expect(await kernel.get(P, "passing", "kept"), "the sweep removed a record without expiry")
    expect(await kernel.get(P, "plain", "kept"), "the sweep removed a record of another collection")


@law()
async def a_rewritten_record_is_not_swept(kernel: Kernel) -> None:
    """A sweep does not remove a key that expired and was written again."""
    await kernel.commit(P, Put("passing", "a", b"old", {"rank": 1}, expires_in=0.01))
    await pass_away()
    await kernel.commit(P, Put("passing", "a", b"new", {"rank": 2}))
    await kernel.sweep()
    record = await kernel.get(P, "passing", "a")
    expect(record is not None and record.body == b"new", f"after the sweep the new record is {record}")
    page = await kernel.find(P, Query("passing", order="rank"))
    equal([record.body for record in page.records], [b"new"], "the records found after the sweep")


P = "p"


async def there(kernel: Kernel, collection: str, key: str) -> Record:
    record = await kernel.get(P, collection, key)
    expect(record is not None, f"{collection}/{key} does not exist")
    assert record is not None
    return record


@law()
async def versions_count_from_one(kernel: Kernel) -> None:
    """A version starts at 1 and grows by 1 with each write of any kind."""
    writes: tuple[Operation, ...] = (
        Insert("things", "a", b"1"),
        Put("things", "a", b"2"),
        Replace("things", "a", 2, b"3"),
        Patch("things", "a", {"rank": 4}),
        Patch("things", "a", {"rank": 4}, version=4),
        Put("things", "a", b"6"),
        Put("things", "a", b"6"),
    )
    for number, write in enumerate(writes, 1):
        receipt = await kernel.commit(P, write)
        equal(receipt.version("things", "a"), number, f"the version in the receipt of {write}")
        equal((await there(kernel, "things", "a")).version, number, f"the version stored by {write}")


@law()
async def a_deleted_key_starts_at_version_one(kernel: Kernel) -> None:
    """After Delete and after Take the key's version starts at 1 again."""
    for remove in (Delete("plain", "a"), Take("plain", "a")):
        equal((await kernel.commit(P, Put("plain", "a", b""))).version("plain", "a"), 1, f"the version before {remove}")
        await kernel.commit(P, Put("plain", "a", b""))
        await kernel.commit(P, remove)
        expect(await kernel.get(P, "plain", "a") is None, f"the record still exists after {remove}")
    equal((await kernel.commit(P, Insert("plain", "a", b""))).version("plain", "a"), 1, "the version of the new record")


@law()
async def insert_writes_only_a_new_record(kernel: Kernel) -> None:
    """Insert writes a new record; it is refused over an existing one, which stays unchanged."""
    await kernel.commit(P, Insert("things", "a", b"first", {"state": "new"}))
    await refuses(kernel, P, Insert("things", "a", b"second", {"state": "old"}), reason="absent", found=1)
    equal(await there(kernel, "things", "a"), Record("things", "a", 1, b"first", {"state": "new"}), "the stored record")


@law()
async def put_replaces_body_and_fields(kernel: Kernel) -> None:
    """Put replaces the body and all fields: a field that is left out becomes None."""
    await kernel.commit(P, Put("things", "a", b"1", {"state": "new", "rank": 1}))
    await kernel.commit(P, Put("things", "a", b"2", {"owner": "me"}))
    record = await there(kernel, "things", "a")
    equal(record.body, b"2", "the body")
    equal([record.fields.get(name) for name in ("state", "owner", "rank")], [None, "me", None], "the fields")


@law()
async def restore_writes_a_new_record_at_a_version(kernel: Kernel) -> None:
    """Restore writes a new record at any version and is refused over a stored one; versions continue from it."""
    receipt = await kernel.commit(P, Restore("things", "a", 41, b"old", {"rank": 1}))
    equal(receipt.version("things", "a"), 41, "the version of the receipt")
    equal(await kernel.get(P, "things", "a"), Record("things", "a", 41, b"old", {"rank": 1}), "the record")
    await refuses(kernel, P, Restore("things", "a", 50, b"no"), reason="absent", found=41)
    equal((await kernel.commit(P, Put("things", "a", b"new"))).version("things", "a"), 42, "the next version")


@law()
async def replace_writes_only_over_its_version(kernel: Kernel) -> None:
    """Replace writes over exactly its version, and is refused over any other, older or newer."""
    await kernel.commit(P, Put("things", "a", b"1", {"state": "new"}))
    await kernel.commit(P, Put("things", "a", b"2", {"state": "new"}))
    for stale in (1, 3):
        await refuses(kernel, P, Replace("things", "a", stale, b"no"), reason="version", found=2)
    await kernel.commit(P, Replace("things", "a", 2, b"3", {"rank": 3}))
    record = await there(kernel, "things", "a")
    equal((record.version, record.body), (3, b"3"), "the replaced record")
    equal((record.fields.get("state"), record.fields.get("rank")), (None, 3), "the fields")


@law()
async def patch_changes_only_its_fields(kernel: Kernel) -> None:
    """Patch changes the given fields and not the others nor the body; None clears a field."""
    await kernel.commit(P, Put("things", "a", b"body", {"state": "new", "owner": "me", "rank": 1}))
    await kernel.commit(P, Patch("things", "a", {"state": "done", "rank": None}))
    record = await there(kernel, "things", "a")
    equal((record.version, record.body), (2, b"body"), "version and body of the patched record")
    equal([record.fields.get(name) for name in ("state", "owner", "rank")], ["done", "me", None], "the fields")


@law()
async def patch_needs_its_record_and_version(kernel: Kernel) -> None:
    """Patch is refused if there is no record, or if its version differs from the given one."""
    await refuses(kernel, P, Patch("things", "a", {"rank": 1}), reason="present", found=0)
    expect(await kernel.get(P, "things", "a") is None, "a refused Patch made a record")
    await kernel.commit(P, Put("things", "a", b"", {"rank": 1}))
    await refuses(kernel, P, Patch("things", "a", {"rank": 2}, version=2), reason="version", found=1)
    await kernel.commit(P, Patch("things", "a", {"rank": 3}, version=1))
    equal((await there(kernel, "things", "a")).fields.get("rank"), 3, "the patched field")


@law()
async def delete_removes_at_its_version_or_at_any(kernel: Kernel) -> None:
    """Delete removes the record; with a version only at that version, without one it also passes if there is none."""
    equal((await kernel.commit(P, Delete("plain", "a"))).version("plain", "a"), 0, "the version after deleting nothing")
    await refuses(kernel, P, Delete("plain", "a", version=1), reason="version", found=0)
    await kernel.commit(P, Put("plain", "a", b""))
    await refuses(kernel, P, Delete("plain", "a", version=2), reason="version", found=1)
    expect(await kernel.get(P, "plain", "a"), "a refused Delete removed the record")
    equal((await kernel.commit(P, Delete("plain", "a", version=1))).version("plain", "a"), 0, "the deleted version")
    expect(await kernel.get(P, "plain", "a") is None, "the deleted record still exists")


@law()
async def take_returns_the_record_and_removes_it(kernel: Kernel) -> None:
    """Take returns the whole record and removes it; a second Take is refused."""
    await kernel.commit(P, Put("things", "a", b"1"))
    await kernel.commit(P, Put("things", "a", b"2", {"state": "new", "rank": -1}))
    before = await there(kernel, "things", "a")
    taken = (await kernel.commit(P, Take("things", "a"))).taken("things", "a")
    equal(taken, before, "the taken record")
    equal(taken, Record("things", "a", 2, b"2", {"state": "new", "rank": -1}), "the taken record")
    expect(await kernel.get(P, "things", "a") is None, "the taken record still exists")
    await refuses(kernel, P, Take("things", "a"), reason="present", found=0)


@law()
async def one_of_many_concurrent_takes_succeeds(kernel: Kernel) -> None:
    """Of twenty concurrent takes of one record, one succeeds and nineteen are refused."""
    for round_ in range(3):
        await kernel.commit(P, Put("plain", "a", str(round_).encode()))

        async def take() -> Receipt:
            return await kernel.commit(P, Take("plain", "a"))

        ends = await asyncio.gather(*(take() for _ in range(20)), return_exceptions=True)
        won = [end for end in ends if isinstance(end, Receipt)]
        lost = [end for end in ends if isinstance(end, CommitRefused) and end.reason == "present"]
        equal((len(won), len(lost)), (1, 19), "winners and losers")
        equal(won[0].taken("plain", "a").body, str(round_).encode(), "the taken body")


@law()
async def get_many_returns_records_in_the_order_of_the_keys(kernel: Kernel) -> None:
    """get_many returns one record or None per key, in the order of the keys, repeated keys included."""
    await kernel.commit(P, *(Put("plain", f"k{n}", str(n).encode()) for n in range(300)))
    keys = ["k7", "none", "k3", "k7", *(f"k{n}" for n in reversed(range(300))), "also none"]
    found = await kernel.get_many(P, "plain", iter(keys))
    equal([record.key if record else None for record in found], [k if k[0] == "k" else None for k in keys], "the keys")
    equal(len(await kernel.get_many(P, "plain", [])), 0, "the number of records for no keys")


@law()
async def get_many_is_one_snapshot(kernel: Kernel) -> None:
    """All records of one get_many are of the same moment, with any number of keys and writers."""
    keys = [f"k{number}" for number in range(40)]
    await kernel.commit(P, *(Put("plain", key, b"0") for key in keys))
    done = False

    async def write() -> None:
        nonlocal done
        for number in range(1, 40):
            await kernel.commit(P, *(Put("plain", key, str(number).encode()) for key in keys))
            await asyncio.sleep(0)
        done = True

    async def read() -> None:
        while not done:
            await asyncio.sleep(0)
            bodies = {record.body if record else None for record in await kernel.get_many(P, "plain", keys)}
            equal(len(bodies), 1, f"different bodies at one moment {bodies}")

    await asyncio.gather(write(), read(), read())


@law()
async def a_record_that_was_read_does_not_change(kernel: Kernel) -> None:
    """Later writes do not change a record that was read."""
    await kernel.commit(P, Put("things", "a", b"1", {"rank": 1}))
    first = await there(kernel, "things", "a")
    await kernel.commit(P, Patch("things", "a", {"rank": 2}))
    await kernel.commit(P, Put("things", "a", b"3", {"rank": 3}))
    equal(first, Record("things", "a", 1, b"1", {"rank": 1}), "the record that was read first")


@law()
async def collections_do_not_mix(kernel: Kernel) -> None:
    """The same key in two collections names two records."""
    await kernel.commit(P, Put("plain", "a", b"plain"), Put("things", "a", b"things"))
    await kernel.commit(P, Put("plain", "a", b"plain again"))
    equal((await there(kernel, "plain", "a")).version, 2, "the version in one collection")
    equal(await there(kernel, "things", "a"), Record("things", "a", 1, b"things"), "the record of the other collection")
    await kernel.commit(P, Delete("plain", "a"))
    expect(await kernel.get(P, "things", "a"), "deleting in one collection removed the other's record")
