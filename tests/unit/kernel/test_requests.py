"""Each invalid operation raises a typed error, whose message names the allowed values."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from msgspec.structs import fields, replace

from keelbolt.errors import InvalidName, InvalidRequest, InvalidValue, NotDeclared, TooLarge, WrittenTwice
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import (
    MAX_COMMIT_BYTES,
    MAX_KEY_CHARS,
    MAX_PARTITION_BYTES,
    MAX_REASON_CHARS,
    MAX_VALUE_BYTES,
)
from keelbolt.kernel.declarations import CheckedCollection, Declarations
from keelbolt.kernel.logs import Append, Draft, Drop, Head, Start, Trim
from keelbolt.kernel.records import (
    NO_FIELDS,
    Absent,
    Collection,
    Delete,
    Expire,
    FieldIn,
    FieldNotIn,
    Insert,
    Patch,
    Present,
    Put,
    Replace,
    Restore,
    Take,
    Version,
)
from keelbolt.kernel.requests import MAX_OPERATIONS, check_family, check_partition, check_seconds, checked_operations
from keelbolt.kernel.work import Bury, Complete, Enqueue, Fence, Release, Remove, Retry

DECLARED = Declarations()
DECLARED.shapes = {
    "note": CheckedCollection(Collection("note", fields={"state": str, "rank": int})),
    "brief": CheckedCollection(Collection("brief", fields={"state": str, "rank": int}, expiring=True)),
}

ENTRY = Draft("made", b"")

# One good operation of each kind.
GOOD: list[Any] = [
    Version("note", "a", 1),
    Absent("note", "a"),
    Present("note", "a"),
    FieldIn("note", "a", "state", ("open", None)),
    FieldNotIn("note", "a", "state", ()),
    Insert("note", "a", b"", {"state": "open"}),
    Restore("note", "a", 3, b"", {"state": "open"}),
    Put("brief", "a", b"", expires_in=1),
    Replace("note", "a", 1, b"", {"rank": 1}),
    Patch("note", "a", {"state": None}, 1),
    Delete("note", "a", 1),
    Take("note", "a"),
    Head("events", "a", 0),
    Append("events", "a", (ENTRY, Draft("made", b"", "once"))),
    Start("events", "a", 1),
    Trim("events", "a", 0),
    Drop("events", "a"),
    Fence("jobs", "a", 1),
    Enqueue("jobs", "a", 1.5, "lane", -3, 1, "me"),
    Complete("jobs", "a", 1),
    Release("jobs", "a", 1, 0),
    Retry("jobs", "a", 1, "no", 1),
    Bury("jobs", "a", 1, ""),
    Remove("jobs", "a"),
    Attach("d", "me"),
    Detach("d", "me"),
]

NAMES: list[Any] = ["", "Upper", "x" * 65, "a b", "é", None, 7, b"note", ["note"]]
KEYS: list[Any] = ["", "k" * (MAX_KEY_CHARS + 1), "a\0b", "\ud800", None, 7, b"a", ["a"], b"x" * 10_000]
COUNTS: list[Any] = [-1, 1 << 63, 1.0, "1", None, True, [1]]
VERSIONS: list[Any] = [0, *COUNTS]
SECONDS: list[Any] = [-0.1, math.inf, math.nan, 1e12, 10**400, "1", True, [1], None]
BODIES: list[Any] = ["text", bytearray(b"x"), memoryview(b"x"), None, 7]
REASONS: list[Any] = ["r" * (MAX_REASON_CHARS + 1), "a\0b", "\ud800", None, 7, b"no"]
LANES: list[Any] = ["l" * (MAX_PARTITION_BYTES + 1), "a\0b", "\ud800", None, 7, ["l"]]

# Invalid values for every field of every operation, and the error of each.
WRONG: dict[str, tuple[type[InvalidRequest], list[Any]]] = {
    "collection": (NotDeclared, ["other", *NAMES]),
    "log": (InvalidName, NAMES),
    "queue": (InvalidName, NAMES),
    "key": (InvalidName, KEYS),
    "stream": (InvalidName, KEYS),
    "digest": (InvalidName, KEYS),
    "holder": (InvalidName, KEYS),
    "version": (InvalidValue, VERSIONS),
    "fence": (InvalidValue, VERSIONS),
    "seq": (InvalidValue, COUNTS),
    "through": (InvalidValue, COUNTS),
    "floor": (InvalidValue, COUNTS),
    "ready_in": (InvalidValue, SECONDS),
    "expires_in": (InvalidValue, [bad for bad in SECONDS if bad is not None]),
    "body": (InvalidValue, BODIES),
    "reason": (InvalidValue, REASONS),
    "fields": (InvalidValue, [["state"], [("state", "open")], 7, "state", {"state": 7}, {"rank": True}]),
    "field": (NotDeclared, ["other", "", None, 7]),
    "values": (InvalidValue, ["open", 7, None, {"open": 1}, (7,), (b"open",)]),
    "entries": (
        InvalidValue,
        [(), None, 7, "ab", ENTRY, (7,), ("made",), ({"kind": "made"},), (Draft("made", "text"),)],  # type: ignore[arg-type]
    ),
    "lane": (InvalidName, LANES),
    "worker": (InvalidName, ["", *(bad for bad in LANES if bad is not None)]),
    "priority": (InvalidValue, [1.0, "1", None, True, 1 << 32, -(1 << 32)]),
    "max_attempts": (InvalidValue, VERSIONS),
}
OPTIONAL = {(Patch, "version"), (Delete, "version")}

CASES = [
    pytest.param(good, name, bad, WRONG[name][0], id=f"{type(good).__name__}-{name}-{number}")
    for good in GOOD
    for name in (field.name for field in fields(good))
    if name != "expires_in" or type(good) is Put
    for number, bad in enumerate(WRONG[name][1])
    if not (bad is None and (type(good), name) in OPTIONAL)
]


def refusal(kind: type[InvalidRequest], *operations: Any) -> str:
    with pytest.raises(kind) as caught:
        checked_operations(DECLARED, operations)
    return str(caught.value)


def test_the_good_ones_are_good_and_complete() -> None:
    assert checked_operations(DECLARED, tuple(GOOD[:4])) == tuple(GOOD[:4])
    for good in GOOD:
        assert checked_operations(DECLARED, (good,)) == (good,)
    assert {type(good) for good in GOOD} == set(get_args(Operation)) - {Expire}


@pytest.mark.parametrize(("good", "name", "bad", "kind"), CASES)
def test_a_bad_part_of_an_operation_is_a_typed_error(
    good: Any, name: str, bad: Any, kind: type[InvalidRequest]
) -> None:
    message = refusal(kind, replace(good, **{name: bad}))
    assert message != kind.__doc__  # the message is specific, not the default
    assert len(message) < 300  # and does not repeat the value


@pytest.mark.parametrize(
    ("kind", "words", "operations"),
    [
        (InvalidRequest, "at least one operation", ()),
        (
            TooLarge,
            "this one has 1001, and nothing is stored. Write fewer items in one call",
            (Absent("note", "a"),) * (MAX_OPERATIONS + 1),
        ),
        (InvalidValue, "not an operation", ("Insert",)),
        (InvalidValue, "not an operation", (Insert,)),
        (InvalidValue, "not an operation", (None,)),
        (InvalidValue, "not an operation", ([Absent("note", "a")],)),
        (InvalidValue, "not an operation", (ENTRY,)),
        (InvalidValue, "not an operation", (Expire("brief", "a"),)),
        (NotDeclared, "expiring=True", (Insert("note", "a", b"", expires_in=1.0),)),
        (NotDeclared, "has no field 'nope'", (Put("note", "a", b"", {"nope": "x"}),)),
        (NotDeclared, "has no field 'nope'", (FieldIn("note", "a", "nope", ()),)),
        (InvalidName, "dedupe key", (Append("events", "a", (Draft("made", b"", ""),)),)),
        (InvalidName, "kind", (Append("events", "a", (Draft("", b""),)),)),
        (InvalidValue, "must be a Draft, not str", (Append("events", "a", ("made",)),)),  # type: ignore[arg-type]
        (InvalidValue, "must be bytes, not str; encode it", (Put("note", "a", "text"),)),  # type: ignore[arg-type]
    ],
)
def test_a_bad_commit_says_what_to_do(kind: type[InvalidRequest], words: str, operations: tuple[Any, ...]) -> None:
    assert words in refusal(kind, *operations)


def test_too_large_values_are_refused() -> None:
    big = bytes(MAX_VALUE_BYTES)
    assert checked_operations(DECLARED, (Put("note", "a", big),))
    for operation in (Put("note", "a", big + b"x"), Append("events", "a", (Draft("made", big + b"x"),))):
        assert f"the limit is {MAX_VALUE_BYTES}; put it into a blob" in refusal(TooLarge, operation)
    puts = [Put("note", str(number), big) for number in range(MAX_COMMIT_BYTES // MAX_VALUE_BYTES)]
    assert checked_operations(DECLARED, tuple(puts))
    assert "put large bytes into a blob" in refusal(TooLarge, *puts, Append("events", "a", (Draft("made", b"x"),)))


WRITES = [
    good for good in GOOD if not isinstance(good, Version | Absent | Present | FieldIn | FieldNotIn | Head | Fence)
]


@pytest.mark.parametrize("one", WRITES, ids=lambda one: type(one).__name__)
def test_a_key_is_written_once_in_a_commit(one: Any) -> None:
    """Any two operations that write the same key are refused; any number of checks may read it."""
    for other in WRITES:
        same = {name: getattr(one, name) for name in ("collection", "log", "queue", "digest") if hasattr(one, name)}
        if not all(hasattr(other, name) for name in same):
            assert checked_operations(DECLARED, (one, other))
            continue
        if getattr(other, "expires_in", None) is not None or getattr(one, "expires_in", None) is not None:
            continue
        message = refusal(WrittenTwice, one, replace(other, **same))
        assert "merge the two writes or make two commits" in message
    assert checked_operations(DECLARED, (Absent("note", "a"), one, Absent("note", "a"), Fence("jobs", "a", 1)))


def test_the_same_name_in_another_family_is_another_key() -> None:
    assert checked_operations(
        DECLARED,
        (Put("note", "a", b""), Put("note", "b", b""), Put("brief", "a", b""), Drop("note", "a"), Remove("note", "a")),
    )


def test_later_changes_by_the_caller_do_not_matter() -> None:
    values, state, entries = ["open"], {"state": "open", "rank": None}, [ENTRY]
    insert, replaced, patch, check, append = checked_operations(
        DECLARED,
        (
            Insert("note", "a", b"", state),
            Replace("note", "b", 1, b"", state),
            Patch("note", "c", state),
            FieldIn("note", "d", "state", values),  # type: ignore[arg-type]
            Append("events", "a", entries),  # type: ignore[arg-type]
        ),
    )
    values.append("done")
    state["state"] = "done"
    entries.append(ENTRY)
    assert insert == Insert("note", "a", b"", {"state": "open"})
    assert replaced == Replace("note", "b", 1, b"", {"state": "open"})
    assert patch == Patch("note", "c", {"state": "open", "rank": None})
    assert check == FieldIn("note", "d", "state", ("open",))
    assert append == Append("events", "a", (ENTRY,))


def test_an_operation_without_fields_is_not_copied() -> None:
    put = Put("note", "a", b"")
    assert put.fields is NO_FIELDS
    assert checked_operations(DECLARED, (put,))[0] is put


@pytest.mark.parametrize("bad", ["", "p" * 201, "世" * 67, "a\0b", "\ud800", None, 7, b"p", ["p"], {}])
def test_a_bad_partition_is_refused_however_often(bad: Any) -> None:
    for _ in range(2):
        with pytest.raises(InvalidName, match="partition"):
            check_partition(bad)


def test_good_names_pass() -> None:
    for partition in ("p", "p" * 200, "世" * 66, "acme/alice@example.com", "../..", " "):
        check_partition(partition)
    check_family("a.b_c-9", "log")
    check_seconds(0, "lease")
    with pytest.raises(InvalidValue, match="lease must be more than 0 seconds"):
        check_seconds(0, "lease", positive=True)
