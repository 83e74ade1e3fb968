"""Laws of partitions: no operation sees another partition."""

from __future__ import annotations

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.kernel.expect import refuses
from keelbolt.conformance.kernel.subject import law
from keelbolt.errors import BlobNotFound
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.logs import Append, Draft, Drop, Head, Trim
from keelbolt.kernel.records import Absent, Delete, FieldIn, Insert, Patch, Present, Put, Query, Record, Take, Version
from keelbolt.kernel.work import Complete, Enqueue, Fence, Remove

NAMES = ("p", "P", "p/q", "p:q", "{p}", "p%", "p_", "p ", "世界", "é", "e\u0301")


@law()
async def a_record_of_another_partition_does_not_exist(kernel: Kernel) -> None:
    """No read, check or write of one partition sees a record of another."""
    await kernel.commit("p", Put("things", "a", b"p", {"state": "new", "rank": 1}))
    expect(await kernel.get("q", "things", "a") is None, "get returned a record of another partition")
    equal(list(await kernel.get_many("q", "things", ["a"])), [None], "the records of get_many")
    equal((await kernel.find("q", Query("things"))).records, (), "the records of find")
    equal((await kernel.find("q", Query("things", order="rank"))).records, (), "the records of find by rank")
    equal((await kernel.count("q", Query("things"))).value, 0, "the count")
    await kernel.commit("q", Absent("things", "a"))
    await refuses(kernel, "q", Present("things", "a"), reason="present", found=0)
    await refuses(kernel, "q", Version("things", "a", 1), reason="version", found=0)
    await refuses(kernel, "q", FieldIn("things", "a", "state", ("new",)), reason="present", found=0)
    await refuses(kernel, "q", Patch("things", "a", {"rank": 2}), reason="present", found=0)
    await refuses(kernel, "q", Take("things", "a"), reason="present", found=0)
    await kernel.commit("q", Delete("things", "a"))
    equal((await kernel.commit("q", Insert("things", "a", b"q"))).version("things", "a"), 1, "the version over there")
    wanted = Record("things", "a", 1, b"p", {"state": "new", "rank": 1})
    equal(await kernel.get("p", "things", "a"), wanted, "the record here")


@law()
async def a_stream_of_another_partition_does_not_exist(kernel: Kernel) -> None:
    """Streams of the same name in two partitions have separate seqs, dedupe keys and floors; a drop ends only one."""
    await kernel.commit("p", Append("log", "s", (Draft("note", b"p", "once"), Draft("note", b"p"))))
    await kernel.commit("q", Head("log", "s", 0))
    equal((await kernel.log_state("q", "log", "s")).head, 0, "the head over there")
    equal((await kernel.read_log("q", "log", "s")).entries, (), "the entries over there")
    receipt = await kernel.commit("q", Append("log", "s", (Draft("note", b"q", "once"),)))
    equal(receipt.seqs("log", "s"), (1,), "the seq over there")
    await kernel.commit("q", Trim("log", "s", 1))
    equal((await kernel.log_state("p", "log", "s")).floor, 0, "the floor here")
    await kernel.commit("q", Drop("log", "s"))
    equal([entry.data for entry in (await kernel.read_log("p", "log", "s")).entries], [b"p", b"p"], "the entries here")


@law()
async def a_fence_of_another_partition_does_not_exist(kernel: Kernel) -> None:
    """A work item and its fence belong to one partition: the same key in another partition is another item."""
    await kernel.commit("p", Enqueue("runs", "a"))
    expect(await kernel.work("q", "runs", "a") is None, "the item is visible in another partition")
    equal((await kernel.list_work("q", "runs", state="waiting")).items, (), "the items over there")
    (claim,) = await kernel.claim("runs", "w")
    equal((claim.partition, claim.key), ("p", "a"), "the claimed items")
    await refuses(kernel, "q", Fence("runs", "a", claim.fence), reason="fence", found=0)
    await refuses(kernel, "q", Complete("runs", "a", claim.fence), reason="fence", found=0)
    await kernel.commit("q", Remove("runs", "a"))
    await kernel.commit("p", claim.fenced())
    await kernel.commit("q", Enqueue("runs", "a", worker="v"))
    await kernel.commit("p", claim.complete())


@law()
async def a_blob_of_another_partition_does_not_exist(kernel: Kernel) -> None:
    """A blob staged in one partition can be neither opened nor attached by its digest in another."""
    blob = await kernel.stage_blob("p", b"secret")
    await kernel.commit("p", Attach(blob.digest, "a"))
    with raises(BlobNotFound):
        await kernel.open_blob("q", blob.digest)
    await refuses(kernel, "q", Attach(blob.digest, "b"), reason="blob")
    equal(await kernel.stage_blob("q", b"secret"), blob, "the same bytes staged over there")
    await kernel.commit("q", Detach(blob.digest, "a"))
    equal(await (await kernel.open_blob("p", blob.digest)).read(), b"secret", "the blob here")


@law()
async def partitions_with_similar_names_are_different(kernel: Kernel) -> None:
    """Partitions that differ by case, accents, wildcards or separators are different partitions."""
    for number, name in enumerate(NAMES):
        await kernel.commit(name, Insert("things", "a", str(number).encode(), {"rank": number}))
        await kernel.commit(name, Append("log", "s", (Draft("note", str(number).encode()),)))
    for number, name in enumerate(NAMES):
        page = await kernel.find(name, Query("things", order="rank"))
        equal([record.body for record in page.records], [str(number).encode()], f"the records found in {name!r}")
        entries = (await kernel.read_log(name, "log", "s")).entries
        equal([(e.seq, e.data) for e in entries], [(1, str(number).encode())], f"the log of {name!r}")


@law()
async def a_key_can_not_reach_into_another_partition(kernel: Kernel) -> None:
    """The names of partitions and keys are never joined: ("p", "q/a") and ("p/q", "a") are two records."""
    await kernel.commit("p", Put("things", "q/a", b"1", {"state": "x"}), Append("log", "q/s", (Draft("n", b""),)))
    expect(await kernel.get("p/q", "things", "a") is None, "the key was read from another partition")
    equal((await kernel.find("p/q", Query("things", {"state": "x"}))).records, (), "the records of find")
    equal((await kernel.log_state("p/q", "log", "s")).head, 0, "the head of the other stream")


@law()
async def partitions_are_listed_in_order(kernel: Kernel) -> None:
    """partitions returns the names of all partitions in order, and continues after a given one."""
    names = sorted(f"p{number:02}" for number in range(12))
    for number, name in enumerate(reversed(names)):
        blob = await kernel.stage_blob(name, b"bytes")
        writes = (
            Put("plain", "a", b""),
            Append("log", "s", (Draft("n", b""),)),
            Enqueue("runs", "a"),
            Attach(blob.digest, "a"),
        )
        await kernel.commit(name, writes[number % 4])
    equal(list(await kernel.partitions()), names, "all partitions")
    equal(list(await kernel.partitions(limit=5)), names[:5], "the first five")
    equal(list(await kernel.partitions(after=names[4], limit=5)), names[5:10], "the next five")
    equal(list(await kernel.partitions(after=names[-1])), [], "those after the last")
