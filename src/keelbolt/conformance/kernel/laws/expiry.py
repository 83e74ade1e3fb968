"""Laws of expiry: no operation sees an expired record, even before a sweep."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.kernel.expect import refuses
from keelbolt.conformance.kernel.subject import law
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.records import Absent, FieldIn, Insert, Patch, Present, Put, Query, Replace, Take, Version

P = "p"
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
