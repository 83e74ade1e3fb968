"""Two stores compared place by place, in any order and any pages."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.storage.transfer.balance import Balance
from keelbolt.storage.transfer.rows import (
    BlobRow,
    ChunkRow,
    EntryRow,
    HoldingRow,
    ItemRow,
    RecordRow,
    Row,
    StreamRow,
    Touched,
)

ROWS: list[Row] = [
    *(RecordRow("p", "c", str(n), 1, "", None, b"x") for n in range(5)),
    StreamRow("p", "l", "s", 40, 0),
    *(EntryRow("p", "l", "s", seq, 5, "kind", b"x", None) for seq in range(1, 41)),
    ItemRow("p", "q", "k", "waiting", "", 0, 0, 0, 5, 7, None),
    BlobRow("p", "d", 3, None),
    ChunkRow("p", "d", 0, b"abc"),
    HoldingRow("p", "d", "h"),
]


@given(st.permutations(ROWS), st.integers(1, 60))
def test_the_same_on_both_sides_is_equal(shuffled: list[Row], size: int) -> None:
    with closing(Balance()) as balance:
        for start in range(0, len(ROWS), size):
            balance.add(ROWS[start : start + size])
            balance.take(shuffled[start : start + size])
        assert balance.unequal([]) == []


@pytest.mark.parametrize("row", ROWS[4:7] + ROWS[-4:], ids=lambda row: type(row).__name__)
def test_what_one_side_lacks_is_found_unless_it_was_touched(row: Row) -> None:
    touched = {
        RecordRow: Touched(1, "record", "p", "c", "4", False),
        StreamRow: Touched(1, "stream", "p", "l", "s", False),
        EntryRow: Touched(1, "stream", "p", "l", "s", False),
        ItemRow: Touched(1, "work", "p", "q", "k", False),
    }.get(type(row), Touched(1, "blob", "p", "", "d", False))
    for here, there in ((ROWS, [each for each in ROWS if each != row]), ([each for each in ROWS if each != row], ROWS)):
        with closing(Balance()) as balance:
            balance.add(here)
            balance.take(there)
            assert len(balance.unequal([touched._replace(partition="other")])) == 1
            assert balance.unequal([touched]) == []


def test_a_difference_of_one_byte_is_found() -> None:
    with closing(Balance()) as balance:
        balance.add([RecordRow("p", "c", "k", 1, "", None, b"x")])
        balance.take([RecordRow("p", "c", "k", 1, "", None, b"y")])
        assert balance.unequal([]) == ["records of c"]


def test_a_row_that_is_there_twice_is_found() -> None:
    with closing(Balance()) as balance:
        balance.add([ROWS[0], ROWS[0], ROWS[0]])
        balance.take([ROWS[0]])
        assert balance.unequal([]) == ["records of c"]
