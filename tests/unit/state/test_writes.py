"""Grouping of several writes into one commit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.kernel import Append, Draft, Put
from keelbolt.state.engine.writes import GROUP_BYTES, MANY, ONE, StateWrite, bundled, merged
from keelbolt.state.families import EVENTS, UPDATES


@given(st.lists(st.integers(1, 3), min_size=1))
def test_grouped_items_are_one_entry(sizes: list[int]) -> None:
    """Single items and lists of items are merged, in order and without loss."""
    number = 0
    drafts = []
    for size in sizes:
        items = [b'{"n":%d}' % (number + place) for place in range(size)]
        number += size
        drafts.append(Draft(ONE, items[0]) if size == 1 else Draft(MANY, b"[%b]" % b",".join(items)))
    (entry,) = bundled(drafts)
    found = json.loads(entry.data)
    assert [item["n"] for item in (found if entry.kind == MANY else [found])] == list(range(number))


def test_entries_of_large_items_stay_below_the_limit() -> None:
    large = Draft(ONE, b'"%b"' % (b"x" * (GROUP_BYTES // 2)))
    assert [len(json.loads(entry.data)) for entry in bundled([large] * 5)] == [1, 1, 1, 1, 1]
    assert [len(json.loads(entry.data)) for entry in bundled([Draft(ONE, b'"x"')] * 5)] == [5]


@pytest.mark.parametrize("kind", ["task", ONE, MANY])
def test_entries_with_different_kinds_are_not_merged(kind: str) -> None:
    """The kind of an entry is the id of a task, which may be any text."""
    drafts = Draft(kind, b"1", "a"), Draft(kind, b"2", "b")
    updates = [StateWrite("p", "m", (Append(UPDATES, "session", (draft,)),), 1) for draft in drafts]
    assert merged(updates) == (Append(UPDATES, "session", drafts),)
    events = [StateWrite("p", "m", (Append(EVENTS, "trace", (Draft(ONE, b"1"),)),), 1)] * 2
    assert merged(events) == (Append(EVENTS, "trace", (Draft(MANY, b"[1,1]"),)),)


def test_only_the_last_write_of_a_record_is_committed() -> None:
    writes = [
        StateWrite("p", "m", (Append("l", "s", (Draft("k", b"1", "a"),)), Put("c", "k", b"old")), 1),
        StateWrite("p", "m", (Append("l", "s", (Draft("k", b"2", "b"),)), Append("l", "t", (Draft("k", b"3"),))), 1),
        StateWrite("p", "m", (Put("c", "k", b"new"),), 1),
    ]
    assert merged(writes) == (
        Append("l", "s", (Draft("k", b"1", "a"), Draft("k", b"2", "b"))),
        Append("l", "t", (Draft("k", b"3"),)),
        Put("c", "k", b"new"),
    )
    assert merged(writes[:1]) == writes[0].operations
