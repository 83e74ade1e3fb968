"""Cursors round-trip, and invalid ones are refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import BadCursor
from keelbolt.kernel.keys import PageCursor, read_cursor, write_cursor

QUERY = ("find", "note", True, 3)
CURSORS = st.builds(PageCursor, st.binary(max_size=300), st.integers(0, (1 << 63) - 1))
PARTS = st.lists(st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=5), max_size=4)


@given(CURSORS, PARTS)
def test_a_cursor_comes_back_as_it_was(cursor: PageCursor, query: list[str | int | bool | None]) -> None:
    text = write_cursor(cursor, *query)
    assert read_cursor(text, *query) == cursor
    assert text.isascii()
    assert not set(text) & set("+/= ")  # safe in a URL without encoding


@given(CURSORS, PARTS, PARTS)
def test_a_cursor_of_another_query_is_refused(cursor: PageCursor, one: list[Any], other: list[Any]) -> None:
    if [(type(part), part) for part in one] != [(type(part), part) for part in other]:
        with pytest.raises(BadCursor, match="start again without a cursor"):
            read_cursor(write_cursor(cursor, *one), *other)


@given(CURSORS, st.data())
def test_a_damaged_cursor_is_refused(cursor: PageCursor, data: st.DataObject) -> None:
    text = write_cursor(cursor, *QUERY)
    raw = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadCursor):
        read_cursor(base64.urlsafe_b64encode(raw).rstrip(b"=").decode(), *QUERY)
    with pytest.raises(BadCursor):
        read_cursor(text[: data.draw(st.integers(0, len(text) - 1))], *QUERY)


@pytest.mark.parametrize("bad", ["", "a", "!!!!", "é", "\ud800", "a b", "A" * 40, None, 7, b"AAAA", ["AAAA"]])
def test_an_invalid_cursor_is_refused(bad: Any) -> None:
    with pytest.raises(BadCursor):
        read_cursor(bad, *QUERY)
