"""The parts of a copy that need no store: rows, digests, marks and the portable file."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import BadBackup, CopyOutdated, StorageFilling, StorageMoved, StoragePaused
from keelbolt.kernel.transfer.backup import ArchiveWriter, frames, pack, table_of, unpack
from keelbolt.kernel.transfer.ports import MarkState, WriteBlock, changed_mark
from keelbolt.kernel.transfer.rows import (
    ROW_TYPES,
    TABLES,
    BlobRow,
    ChunkRow,
    EntryRow,
    HoldingRow,
    ItemRow,
    PartitionRow,
    RecordRow,
    Row,
    RowDigests,
    StreamRow,
    Table,
    item_row,
)

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
NUMBERS = st.integers(-(1 << 62), 1 << 62)
RECORDS = st.builds(RecordRow, NAMES, NAMES, NAMES, NUMBERS, NAMES, st.none() | NUMBERS, st.binary(max_size=50))
ENTRIES = st.builds(EntryRow, NAMES, NAMES, NAMES, NUMBERS, NUMBERS, NAMES, st.binary(max_size=50), st.none() | NAMES)
ITEM = item_row(("p", "q", "k"), "waiting", "", 0, 10, 2, 5, 7, None, None)

SAMPLES: list[Row] = [
    RecordRow("p", "c", "k", 1, "", None, b"x"),
    EntryRow("p", "l", "s", 1, 5, "kind", b"x", None),
    StreamRow("p", "l", "s", 3, 1),
    ITEM,
    BlobRow("p", "d", 3, None),
    ChunkRow("p", "d", 0, b"abc"),
    HoldingRow("p", "d", "h"),
    PartitionRow("p"),
]


def digest(rows: list[Row]) -> RowDigests:
    digests = RowDigests()
    digests.add(rows)
    return digests


@given(st.lists(RECORDS | ENTRIES), st.randoms())
def test_a_digest_is_independent_of_order_and_pages(rows: list[Row], dice: object) -> None:
    whole = digest(rows)
    parts = RowDigests()
    for row in sorted(rows, key=repr):
        parts.add([row])
    assert whole.differing(parts) == []
    assert RowDigests.of_json(json.loads(json.dumps(whole.to_json()))) == whole


@pytest.mark.parametrize("row", SAMPLES, ids=lambda row: type(row).__name__)
def test_a_digest_covers_everything_but_times(row: Row) -> None:
    value: Any
    for name, value in row._asdict().items():
        if isinstance(value, bytes):
            other: Any = value + b"!"
        elif isinstance(value, int):
            other = value + 1
        else:
            other = f"{value}!"
        changed = row._replace(**{name: other})
        same = name == "ready_in"
        assert (digest([row]).differing(digest([changed])) == []) is same, name
    assert digest([row]).differing(digest([row, row]))
    assert digest([row]).differing(digest([]))


def test_held_items_are_copied_as_released() -> None:
    held = item_row(("p", "q", "k"), "held", "l", 1, 500, 3, 5, 9, None, "why")
    assert held == ItemRow("p", "q", "k", "waiting", "l", 1, 0, 2, 5, 9, "why")
    again = item_row(("p", "q", "k"), "held", "l", 1, 500, 3, 5, 9, -7, None)
    assert again.ready_in == -7
    dead = item_row(("p", "q", "k"), "dead", "l", 1, 5, 3, 5, 9, None, "why")
    assert (dead.state, dead.attempt) == ("dead", 3)


@given(st.lists(RECORDS, max_size=5), st.lists(ENTRIES, max_size=5))
def test_pages_come_back_as_they_were(records: list[RecordRow], entries: list[EntryRow]) -> None:
    pages: list[tuple[Table, list[Row]]] = [("record", list(records)), ("entry", list(entries))]
    file = io.BytesIO()
    writer = ArchiveWriter(file)
    for table, rows in pages:
        writer.write_rows(table, rows)
    found = list(frames(file))
    assert [table_of(frame.payload) for frame in found] == ["record", "entry"]
    assert [unpack(frame.payload) for frame in found] == pages
    assert [unpack(frame.payload) for frame in frames(file, found[0].next)] == pages[1:]


def test_every_table_has_its_rows() -> None:
    assert set(ROW_TYPES) == set(TABLES)
    assert pack("partition", [PartitionRow("p")])


def test_a_moved_frame_is_detected() -> None:
    file = io.BytesIO()
    writer = ArchiveWriter(file)
    writer.write(b"ROWS", b"one")
    start = file.tell()
    writer.write(b"ROWS", b"two")
    data = file.getvalue()
    swapped = data[:18] + data[start:] + data[18:start]
    for damaged in (swapped, data[:18] + data[start:], data[:-1], data[: start + 4]):
        with pytest.raises(BadBackup):
            list(frames(io.BytesIO(damaged)))


@pytest.mark.parametrize(
    ("state", "error"), [("copying", StoragePaused), ("moved", StorageMoved), ("filling", StorageFilling)]
)
def test_marks_refuse_until_they_end(state: MarkState, error: type[Exception]) -> None:
    mark = WriteBlock.load(WriteBlock(state, "copy", 10).dump())
    assert mark is not None
    assert type(mark.refusal(9)) is error
    assert mark.refusal(10) is None
    assert mark.over(10)
    assert type(WriteBlock(state, "copy").refusal(1 << 60)) is error
    assert WriteBlock.load(None) is None


def test_a_mark_is_replaced_by_its_copy_while_it_holds() -> None:
    old = WriteBlock("copying", "mine", 10)
    new = changed_mark(old, "moved", "mine", now=9, seconds=None, if_held=True)
    assert new == WriteBlock("moved", "mine")
    assert changed_mark(old, None, "mine", now=9, seconds=None, if_held=True) is None
    assert changed_mark(None, "copying", "mine", now=9, seconds=1.0, if_held=False) == WriteBlock(
        "copying", "mine", 1_000_009
    )
    for mark, now in ((old, 10), (None, 9), (WriteBlock("copying", "other", 10), 9)):
        with pytest.raises(CopyOutdated):
            changed_mark(mark, "moved", "mine", now=now, seconds=None, if_held=True)
