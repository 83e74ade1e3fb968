"""Laws of requests: an invalid call raises a typed error and has no effect."""

from __future__ import annotations

from typing import Any

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.kernel.subject import law
from keelbolt.errors import InvalidName, InvalidRequest, InvalidValue, NotDeclared, TooLarge
from keelbolt.kernel.blobs import Attach
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import (
    MAX_COMMIT_BYTES,
    MAX_KEY_CHARS,
    MAX_PARTITION_BYTES,
    MAX_REASON_CHARS,
    MAX_VALUE_BYTES,
    Kernel,
)
from keelbolt.kernel.logs import Append, Draft, Drop, Head, Start, Trim
from keelbolt.kernel.records import (
    MAX_FIELD_CHARS,
    Absent,
    Collection,
    Delete,
    Expire,
    FieldIn,
    FieldNotIn,
    Index,
    Insert,
    Patch,
    Present,
    Put,
    Query,
    Replace,
    Restore,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Complete, Enqueue, Release, Remove, Retry

P = "p"
ENTRY = Draft("note", b"")

BAD_KEYS: tuple[Any, ...] = ("", "k" * (MAX_KEY_CHARS + 1), "\ud800", "a\0b", None, 7, b"a")
BAD_PARTITIONS: tuple[Any, ...] = ("", "p" * (MAX_PARTITION_BYTES + 1), "世" * 70, "\ud800", "a\0b", None, 7)


async def refused(kernel: Kernel, kind: type[InvalidRequest], *operations: Operation) -> None:
    """The commit raises this error, and no other operation of the commit is written."""
    with raises(kind):
        await kernel.commit(P, Put("plain", "beside", b""), *operations)
    expect(
        await kernel.get(P, "plain", "beside") is None,
        f"a write was stored with an invalid {type(operations[0]).__name__}",
    )


@law()
async def bad_keys_are_invalid_names(kernel: Kernel) -> None:
    """A key that is empty, too long, not text, or has NUL or a lone surrogate raises InvalidName everywhere."""
    for bad in BAD_KEYS:
        for operation in (
            Version("plain", bad, 1),
            Absent("plain", bad),
            Present("plain", bad),
            FieldIn("things", bad, "rank", (1,)),
            FieldNotIn("things", bad, "rank", (1,)),
            Insert("plain", bad, b""),
            Restore("plain", bad, 1, b""),
            Put("plain", bad, b""),
            Replace("plain", bad, 1, b""),
            Patch("things", bad, {"rank": 1}),
            Delete("plain", bad),
            Take("plain", bad),
            Head("log", bad, 0),
            Append("log", bad, (ENTRY,)),
            Start("log", bad, 1),
            Trim("log", bad, 1),
            Drop("log", bad),
            Enqueue("runs", bad),
            Complete("runs", bad, 1),
            Release("runs", bad, 1),
            Retry("runs", bad, 1, "why"),
            Bury("runs", bad, 1, "why"),
            Remove("runs", bad),
            Attach("0" * 64, bad),
        ):
            await refused(kernel, InvalidName, operation)
        if bad is not None:
            await refused(kernel, InvalidName, Append("log", "s", (Draft("note", b"", bad),)))
        with raises(InvalidName):
            await kernel.get(P, "plain", bad)
        with raises(InvalidName):
            await kernel.get_many(P, "plain", ["good", bad])
        with raises(InvalidName):
            await kernel.read_log(P, "log", bad)
        with raises(InvalidName):
            await kernel.work(P, "runs", bad)


@law()
async def bad_partitions_are_invalid_names(kernel: Kernel) -> None:
    """A partition that is empty, too long, not text, or has NUL or a lone surrogate raises InvalidName."""
    for bad in BAD_PARTITIONS:
        with raises(InvalidName):
            await kernel.commit(bad, Put("plain", "a", b""))
        with raises(InvalidName):
            await kernel.get(bad, "plain", "a")
        with raises(InvalidName):
            await kernel.find(bad, Query("things"))
        with raises(InvalidName):
            await kernel.log_state(bad, "log", "s")
        with raises(InvalidName):
            await kernel.work(bad, "runs", "a")
        with raises(InvalidName):
            await kernel.stage_blob(bad, b"")
    longest = "p" * MAX_PARTITION_BYTES
    await kernel.commit(longest, Put("plain", "a", b""))
    expect(await kernel.get(longest, "plain", "a"), "a partition of exactly the limit was lost")


@law()
async def bad_names_of_families_are_invalid_names(kernel: Kernel) -> None:
    """Logs, queues, collections, fields and indexes have plain names; others raise InvalidName."""
    for bad in ("", "Upper", "1st", "a b", "a/b", "ü", "n" * 65):
        await refused(kernel, InvalidName, Append(bad, "s", (ENTRY,)))
        await refused(kernel, InvalidName, Enqueue(bad, "a"))
        with raises(InvalidName):
            await kernel.read_log(P, bad, "s")
        with raises(InvalidName):
            await kernel.claim(bad, "w")
        with raises(InvalidName):
            await kernel.declare(Collection(bad))
        with raises(InvalidName):
            await kernel.declare(Collection("good", fields={bad: str}))


@law()
async def undeclared_collections_and_fields_are_refused(kernel: Kernel) -> None:
    """A collection or field that is not declared raises NotDeclared, in writes, checks and reads."""
    await refused(kernel, NotDeclared, Put("undeclared", "a", b""))
    await refused(kernel, NotDeclared, Absent("undeclared", "a"))
    await refused(kernel, NotDeclared, Present("undeclared", "a"))
    await refused(kernel, NotDeclared, Take("undeclared", "a"))
    await refused(kernel, NotDeclared, Put("things", "a", b"", {"undeclared": 1}))
    await refused(kernel, NotDeclared, Put("plain", "a", b"", {"rank": 1}))
    await refused(kernel, NotDeclared, Patch("things", "a", {"undeclared": 1}))
    await refused(kernel, NotDeclared, FieldIn("things", "a", "undeclared", (1,)))
    await refused(kernel, NotDeclared, Put("plain", "a", b"", expires_in=1.0))
    with raises(NotDeclared):
        await kernel.get(P, "undeclared", "a")
    with raises(NotDeclared):
        await kernel.find(P, Query("undeclared"))
    with raises(NotDeclared):
        await kernel.count(P, Query("undeclared"))


@law()
async def values_of_a_wrong_type_are_refused(kernel: Kernel) -> None:
    """A value of another type than declared, or out of range, raises InvalidValue and nothing is written."""
    bad: dict[str, tuple[Any, ...]] = {
        "whole": (1.0, "1", True, 2**63, -(2**63) - 1),
        "real": ("1.0", True, float("nan"), float("inf")),
        "flag": (0, 1, "true"),
        "text": (1, b"text", ["text"]),
    }
    no_bytes: tuple[Any, ...] = ("text", None, 7, {"json": 1})
    no_seconds: tuple[Any, ...] = (-1, float("nan"), float("inf"), "soon")
    no_number: tuple[Any, ...] = (-1, "1", 1.5, None)
    wrong: tuple[Any, ...] = (
        *(Put("typed", "a", b"", {name: value}) for name, values in bad.items() for value in values),
        *(Put("plain", "a", value) for value in no_bytes),
        *(Append("log", "s", (Draft("note", value),)) for value in no_bytes),
        *(Put("passing", "a", b"", expires_in=value) for value in no_seconds if value is not None),
        *(Enqueue("runs", "a", ready_in=value) for value in no_seconds),
        *(Enqueue("runs", "a", max_attempts=value) for value in (0, *no_number)),
        *(Enqueue("runs", "a", priority=value) for value in no_number[1:]),
        *(Version("plain", "a", value) for value in no_number),
        *(Replace("plain", "a", value, b"") for value in no_number),
        *(Head("log", "s", value) for value in no_number),
        *(Trim("log", "s", value) for value in no_number),
        FieldIn("typed", "a", "whole", ("1",)),
        Patch("typed", "a", {"whole": "1"}),
        Append("log", "s", ()),
        Append("log", "s", ("entry",)),  # type: ignore[arg-type]
        Bury("runs", "a", 1, "x" * (MAX_REASON_CHARS + 1)),
        Expire("passing", "a"),  # an operation that only engines use, in a sweep
        "not an operation",
        None,
    )
    for operation in wrong:
        await refused(kernel, InvalidValue, operation)


@law()
async def a_commit_without_operations_is_refused(kernel: Kernel) -> None:
    """A commit needs at least one operation."""
    with raises(InvalidRequest):
        await kernel.commit(P)


@law()
async def large_values_are_refused(kernel: Kernel) -> None:
    """A body, entry, text field or commit over its limit raises TooLarge, and nothing is written."""
    await refused(kernel, TooLarge, Put("typed", "a", b"", {"text": "x" * (MAX_FIELD_CHARS + 1)}))
    over = bytes(MAX_VALUE_BYTES + 1)
    await refused(kernel, TooLarge, Put("plain", "a", over))
    await refused(kernel, TooLarge, Append("log", "s", (ENTRY, Draft("note", over))))
    full = bytes(MAX_VALUE_BYTES)
    count = MAX_COMMIT_BYTES // MAX_VALUE_BYTES + 1
    await refused(kernel, TooLarge, *(Put("plain", f"k{n}", full) for n in range(count)))
    equal((await kernel.log_state(P, "log", "s")).head, 0, "the head of the stream")


@law()
async def invalid_limits_of_reads_are_refused(kernel: Kernel) -> None:
    """Limits, seqs and times of reads that are not valid numbers raise InvalidValue."""
    bad: Any
    for bad in (0, -1, 1.5, "ten", None):
        with raises(InvalidValue):
            await kernel.find(P, Query("things"), limit=bad)
        with raises(InvalidValue):
            await kernel.read_log(P, "log", "s", limit=bad)
        with raises(InvalidValue):
            await kernel.claim("runs", "w", limit=bad)
        with raises(InvalidValue):
            await kernel.list_work(P, "runs", state="dead", limit=bad)
        with raises(InvalidValue):
            await kernel.sweep(limit=bad)
    for bad in (-1, "one", 1.5):
        with raises(InvalidValue):
            await kernel.read_log(P, "log", "s", after=bad)
    for bad in (0, -1.0, float("nan"), float("inf"), "long"):
        with raises(InvalidValue):
            await kernel.claim("runs", "w", lease_seconds=bad)
        with raises(InvalidValue):
            await kernel.heartbeat("w", lease_seconds=bad)
    bad = "asleep"
    with raises(InvalidValue):
        await kernel.list_work(P, "runs", state=bad)


@law()
async def bad_workers_are_invalid_names(kernel: Kernel) -> None:
    """A worker name that is empty, too long or not text raises InvalidName."""
    bad: Any
    for bad in ("", "w" * 5000, None, 7, "\ud800"):
        with raises(InvalidName):
            await kernel.claim("runs", bad)
        with raises(InvalidName):
            await kernel.heartbeat(bad)
        with raises(InvalidName):
            await kernel.retire(bad)
        if bad is not None:
            await refused(kernel, InvalidName, Enqueue("runs", "a", worker=bad))


@law()
async def bad_declarations_are_refused(kernel: Kernel) -> None:
    """A declaration with unknown types or fields, too many indexes, or counters of expiring records is refused."""
    kind: Any = list
    with raises(InvalidValue):
        await kernel.declare(Collection("bad", fields={"a": kind}))
    with raises(NotDeclared):
        await kernel.declare(Collection("bad", indexes=(Index("by_a", ("a",)),)))
    with raises(NotDeclared):
        await kernel.declare(Collection("bad", counters=(("a",),)))
    with raises(InvalidValue):
        await kernel.declare(Collection("bad", indexes=tuple(Index(f"i{n}") for n in range(5))))
    with raises(InvalidValue):
        await kernel.declare(Collection("bad", indexes=(Index("one"), Index("one"))))
    with raises(InvalidValue):
        await kernel.declare(Collection("bad", counters=((),), expiring=True))
    with raises(NotDeclared):
        await kernel.commit(P, Put("bad", "a", b""))
