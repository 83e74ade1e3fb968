"""Laws of values: they are stored byte for byte, and similar keys are different."""

from __future__ import annotations

import hashlib

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.kernel.subject import law
from keelbolt.kernel.contract import MAX_KEY_CHARS, MAX_VALUE_BYTES, Kernel
from keelbolt.kernel.logs import Append, Draft
from keelbolt.kernel.records import Fields, Insert, Patch, Put, Query, Take
from keelbolt.kernel.work import Enqueue

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
