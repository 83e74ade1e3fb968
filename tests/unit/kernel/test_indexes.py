"""The indexes of the memory engine against a plain model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.keys import END, encode
from keelbolt.kernel.ledger import RecordState
from keelbolt.kernel.memory.content import GATHERED, Indexes, SortedEntries
from keelbolt.kernel.records import Collection, Fields, Index

SHAPE = CheckedCollection(
    Collection(
        "note",
        {"state": str, "rank": int},
        (Index("by_key"), Index("by_rank", ("state",), "rank")),
        counters=((), ("state",)),
    )
)
FIELDS = st.fixed_dictionaries({}, optional={"state": st.sampled_from("ab"), "rank": st.integers(0, 3)})
CHANGES = st.lists(st.tuples(st.sampled_from("xyz"), st.none() | FIELDS), max_size=20)


def ordered(rows: dict[str, Fields], state: str) -> list[str]:
    """Return the keys ordered by rank, None first, then by key."""

    def place(key: str) -> tuple[int, str]:
        rank = rows[key].get("rank")
        return (-1 if rank is None else int(rank), key)

    return sorted((key for key, fields in rows.items() if fields.get("state") == state), key=place)


@given(CHANGES)
def test_they_follow_every_change(changes: list[tuple[str, Fields | None]]) -> None:
    indexes = Indexes()
    rows: dict[str, Fields] = {}
    for key, fields in changes:
        new = RecordState(1, fields, None, b"") if fields is not None else None
        indexes.change(SHAPE, ("p", "note", key), new)
        if fields is None:
            rows.pop(key, None)
        else:
            rows[key] = fields
    everything = encode(("p",))
    by_key = [key[2] for _, key in indexes.scan("note", 0, everything, everything + END, newest_first=False)]
    assert by_key == sorted(rows)
    for state in "ab":
        low = encode(("p", state))
        found = [key[2] for _, key in indexes.scan("note", 1, low, low + END, newest_first=False)]
        assert found == ordered(rows, state)
        back = [key[2] for _, key in indexes.scan("note", 1, low, low + END, newest_first=True)]
        assert back == found[::-1]
        assert indexes.total("note", 1, low) == len(found)
    assert indexes.total("note", 0, everything) == len(rows)


def test_forgetting_one_collection_leaves_the_others() -> None:
    indexes = Indexes()
    other = CheckedCollection(Collection("other", indexes=(Index("by_key"),), counters=((),)))
    for shape in (SHAPE, other):
        indexes.change(shape, ("p", shape.name, "a"), RecordState(1, {}, None, b""))
    indexes.forget("note")
    low = encode(("p",))
    assert list(indexes.scan("note", 0, low, low + END, newest_first=False)) == []
    assert len(list(indexes.scan("other", 0, low, low + END, newest_first=False))) == 1
    assert indexes.total("note", 0, low) == 0
    assert indexes.total("other", 0, low) == 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=300), st.integers(0, 60), st.integers(0, 60))
def test_sorted_entries_agree_with_a_sorted_set(changes: list[tuple[bool, int]], low: int, high: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keelbolt.kernel.memory.content.BLOCK", 4)
        entries, model = SortedEntries(), set[bytes]()
        for added, number in changes:
            entry = b"%03d" % number
            if added and entry not in model:
                entries.add(entry, ("p", "c", str(number)))
                model.add(entry)
            elif not added and entry in model:
                entries.remove(entry)
                model.remove(entry)
        bounds = b"%03d" % low, b"%03d" % high
        expected = sorted(entry for entry in model if bounds[0] <= entry < bounds[1])
        assert [entry for entry, _ in entries.scan(*bounds, newest_first=False)] == expected
        assert [entry for entry, _ in entries.scan(*bounds, newest_first=True)] == expected[::-1]


def test_a_record_that_changes_between_two_reads_is_indexed_once() -> None:
    indexes, low = Indexes(), encode(("p", "a"))
    for rank in range(GATHERED * 3):
        indexes.change(SHAPE, ("p", "note", str(rank)), RecordState(1, {"state": "a", "rank": rank}, None, b""))
        indexes.change(SHAPE, ("p", "note", str(rank)), RecordState(2, {"state": "b", "rank": rank}, None, b""))
    assert list(indexes.scan("note", 1, low, low + END, newest_first=False)) == []
    assert indexes.total("note", 1, encode(("p", "b"))) == GATHERED * 3
