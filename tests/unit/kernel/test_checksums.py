"""Checksums cover every part of the stored data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import StorageCorrupt
from keelbolt.kernel.sqlite.rows import body_is_sound, entry_crc, entry_is_sound, head_crc

HEAD: list[Any] = ["p", "note", "key", 3, '{"rank":1}', None]
ENTRY: tuple[Any, ...] = (7, 3, 1_000_000, "made", b"data")


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, "q"), (1, "other"), (2, "kez"), (3, 4), (4, '{"rank":2}'), (4, ""), (5, 0), (5, 99)],
)
def test_every_part_of_a_record_counts(place: int, value: Any) -> None:
    other = HEAD.copy()
    other[place] = value
    assert head_crc(*other) != head_crc(*HEAD)


def test_parts_do_not_run_into_each_other() -> None:
    assert head_crc("a", "bc", "d", 1, "", None) != head_crc("ab", "c", "d", 1, "", None)
    assert entry_crc(1, 23, 4, "x", b"") != entry_crc(12, 3, 4, "x", b"")


@pytest.mark.parametrize(("place", "value"), [(0, 8), (1, 4), (2, 1_000_001), (3, "mode"), (4, b"datb"), (4, b"")])
def test_every_part_of_an_entry_counts(place: int, value: Any) -> None:
    number, seq, at, kind, data = ENTRY
    crc = entry_crc(number, seq, at, kind, data)
    assert entry_is_sound(number, seq, at, kind, data, crc)
    number, seq, at, kind, data = (value if place == other else part for other, part in enumerate(ENTRY))
    assert not entry_is_sound(number, seq, at, kind, data, crc)


@given(st.binary(min_size=1, max_size=100), st.data())
def test_one_flipped_bit_is_noticed(data: bytes, draw: st.DataObject) -> None:
    crc = entry_crc(1, 1, 1, "made", data)
    flipped = bytearray(data)
    flipped[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    assert not entry_is_sound(1, 1, 1, "made", bytes(flipped), crc)


@pytest.mark.parametrize("body", ["text", None, 7, 1.5])
def test_a_value_that_is_not_bytes_is_not_sound(body: object) -> None:
    assert not body_is_sound(body, 0)
    assert not entry_is_sound(1, 1, 1, "made", body, 0)
    assert body_is_sound(b"", 0)


def test_damage_says_what_to_do() -> None:
    error = StorageCorrupt.of("a record of 'note'")
    assert isinstance(error, StorageCorrupt)
    assert "Run `keelbolt storage check`, and restore from a backup" in str(error)
