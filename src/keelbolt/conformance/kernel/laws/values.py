"""Laws of stored data: values are stored byte for byte; similar keys and other partitions are different."""

from __future__ import annotations

import hashlib

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.kernel.subject import law, refuses
from keelbolt.errors import BlobNotFound
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.contract import MAX_KEY_CHARS, MAX_VALUE_BYTES, Kernel
from keelbolt.kernel.logs import Append, Draft, Drop, Head, Trim
from keelbolt.kernel.records import (
    Absent,
    Delete,
    FieldIn,
    Fields,
    Insert,
    Patch,
    Present,
    Put,
    Query,
    Record,
    Take,
    Version,
)
from keelbolt.kernel.work import Complete, Enqueue, Fence, Remove

P = "p"

BODIES = (
    b"",
    b"\x00",
    b"null",
    b'{"b": 1, "a": 2,  "a": 3}',
    b'{"nan": NaN, "inf": -Infinity}',
    b'{"lone": "\\ud800", "nul": "\\u0000"}',
    b'"\xed\xa0\x80"',
    bytes(range(256)) * 3,
    "Grüße, 世界 🐚\r\n".encode(),
    b" leading and trailing ",
    b"'; drop table records; --",
    b"1e400",
)

KEYS = (
    "a",
    "A",
    "a ",
    " a",
    "a/b",
    "a:b",
    "a\nb",
    "a\tb",
    "a%b",
    "a_b",
    "a'b",
    'a"b',
    "{a}",
    "a\\b",
    "é",
    "e\u0301",
    "ß",
    "ss",
    "世界",
    "🐚",
    "\uffff",
    "\U0010ffff",
    "0",
    "00",
    "1e3",
    "null",
    "\x01",
    "\x7f",
    "k" * MAX_KEY_CHARS,
    "k" * (MAX_KEY_CHARS - 1) + "l",
    "k" * (MAX_KEY_CHARS - 1),
    "世" * MAX_KEY_CHARS,
)


@law()
async def bodies_are_stored_byte_for_byte(kernel: Kernel) -> None:
    """A body is read back byte for byte: empty, with NUL, NaN, escaped lone surrogates, spaces, or binary."""
    await kernel.commit(P, *(Put("plain", f"k{n}", body) for n, body in enumerate(BODIES)))
    for number, body in enumerate(BODIES):
        record = await kernel.get(P, "plain", f"k{number}")
        equal(record.body if record else None, body, "the body of get")
        receipt = await kernel.commit(P, Take("plain", f"k{number}"))
        equal(receipt.taken("plain", f"k{number}").body, body, "the body of Take")


@law()
async def a_patched_body_stays_byte_for_byte(kernel: Kernel) -> None:
    """A patch of fields does not change the body, as get and find return it."""
    await kernel.commit(P, *(Put("things", f"k{n:02}", body) for n, body in enumerate(BODIES)))
    await kernel.commit(P, *(Patch("things", f"k{n:02}", {"rank": n}) for n in range(len(BODIES))))
    page = await kernel.find(P, Query("things", order="rank"))
    equal([record.body for record in page.records], list(BODIES), "the bodies of find")


@law()
async def entries_are_stored_byte_for_byte(kernel: Kernel) -> None:
    """An entry's kind and data are read back unchanged."""
    kinds = ("note", "Ünï", "a b", "🐚", "k" * 200)
    drafts = tuple(Draft(kinds[n % len(kinds)], body) for n, body in enumerate(BODIES))
    await kernel.commit(P, Append("log", "s", drafts))
    page = await kernel.read_log(P, "log", "s")
    equal([(e.kind, e.data) for e in page.entries], [(d.kind, d.data) for d in drafts], "the entries")


@law()
async def ten_megabytes_are_stored(kernel: Kernel) -> None:
    """Bodies and entries of ten megabytes, and of exactly the limit, are read back unchanged."""
    for size in (10_000_000, MAX_VALUE_BYTES):
        data = hashlib.shake_128(str(size).encode()).digest(size)
        await kernel.commit(P, Put("plain", f"k{size}", data), Append("log", f"s{size}", (Draft("note", data),)))
        record = await kernel.get(P, "plain", f"k{size}")
        expect(
            record is not None and record.body == data,
            f"a body of {size} bytes that were read differ from those written",
        )
        page = await kernel.read_log(P, "log", f"s{size}")
        expect(page.entries[0].data == data, f"an entry of {size} bytes that were read differ from those written")


@law()
async def similar_keys_are_different(kernel: Kernel) -> None:
    """Keys that look alike are different: by case, accents, spaces, wildcards, or in the last of 4,000 characters."""
    for number, key in enumerate(KEYS):
        await kernel.commit(P, Insert("things", key, str(number).encode()), Append("log", key, (Draft("n", b""),)))
        receipt = await kernel.commit(P, Enqueue("runs", key, worker="w"))
        expect(receipt.fence("runs", key) > 0, f"the work item {key!r} was confused with another")
    records = await kernel.get_many(P, "things", KEYS)
    equal([int(record.body) if record else -1 for record in records], list(range(len(KEYS))), "the records of the keys")
    equal([record.key if record else "" for record in records], list(KEYS), "the keys of the records")
    for key in KEYS:
        equal((await kernel.log_state(P, "log", key)).head, 1, f"the head of the stream {key[:20]!r}")
        item = await kernel.work(P, "runs", key)
        equal(item.key if item else None, key, "the key of the work item")
    page = await kernel.find(P, Query("things"), limit=1000)
    equal(sorted(record.key for record in page.records), sorted(KEYS), "the keys of find")


@law()
async def fields_keep_their_types(kernel: Kernel) -> None:
    """Field values are read back equal and of the same type; a field that is None or left out is None."""
    rows: tuple[Fields, ...] = (
        {"text": "", "whole": 0, "real": 0.0, "flag": False},
        {"text": "a", "whole": -1, "real": -0.5, "flag": True},
        {"text": "世界 🐚 e\u0301", "whole": 2**63 - 1, "real": 1e308},
        {"text": "x" * 4000, "whole": -(2**63), "real": 5e-324},
        {"text": "NULL", "whole": 2**53 + 1, "real": 0.1 + 0.2},
        {"text": None, "flag": None},
        {},
    )
    await kernel.commit(P, *(Put("typed", str(n), b"", fields) for n, fields in enumerate(rows)))
    records = await kernel.get_many(P, "typed", [str(n) for n in range(len(rows))])
    for record, fields in zip(records, rows, strict=True):
        for name in ("text", "whole", "real", "flag"):
            equal(record.fields.get(name) if record else "?", fields.get(name), f"the field {name}")


@law()
async def similar_dedupe_keys_are_different(kernel: Kernel) -> None:
    """Dedupe keys that look alike are different keys."""
    drafts = tuple(Draft("note", str(n).encode(), key) for n, key in enumerate(KEYS))
    receipt = await kernel.commit(P, Append("log", "s", drafts))
    equal(receipt.seqs("log", "s"), tuple(range(1, len(KEYS) + 1)), "the seqs of the first time")
    again = await kernel.commit(P, Append("log", "s", tuple(reversed(drafts))))
    equal(again.seqs("log", "s"), tuple(range(len(KEYS), 0, -1)), "the seqs of the repeat")


# ----------------------------------------------------------------------------------------------------------- partitions


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
