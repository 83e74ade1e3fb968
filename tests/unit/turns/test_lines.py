"""The line index finds the same lines as split(), for any bytes in any chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.turns import readers as lines
from keelbolt.turns.in_memory import InMemoryMediaStore, InMemorySpoolReader
from keelbolt.turns.readers import is_media_reader, is_range_reader, is_spool_reader

STRETCH = 7


@pytest.fixture(autouse=True, scope="module")
def short_stretches() -> object:
    """Use many index stretches in a short text."""
    patch = pytest.MonkeyPatch()
    patch.setattr(lines, "STRETCH_BYTES", STRETCH)
    yield
    patch.undo()


@given(
    pieces=st.lists(st.text(alphabet="ab\n\r\x0b\u2028", max_size=20).map(str.encode)),
    start=st.integers(-3, 40),
    end=st.integers(-3, 60),
)
async def test_index_agrees_with_split(pieces: list[bytes], start: int, end: int) -> None:
    """Compares each line of each range, and their number, through the stored form of the index."""
    data = b"".join(pieces)
    counter = lines.LineCounter()
    for piece in pieces:
        counter.add(piece)
    index = lines.LineIndex.load(counter.index().dump(), len(data))

    async def chunk(number: int) -> bytes:
        return data[number * STRETCH : (number + 1) * STRETCH]

    whole = lines.lines_of(data)
    assert index.line_count == len(whole)
    assert [line async for line in lines.lines_between(chunk, index, start, end)] == whole[max(start, 0) : max(end, 0)]


def test_is_reader() -> None:
    """Instances with all methods are readers; classes, strings and partial instances are not."""
    reader = InMemorySpoolReader(b"")
    assert is_spool_reader(reader)
    assert is_range_reader(reader)
    assert is_media_reader(reader)
    for value in (InMemorySpoolReader, "text", None, 3, InMemoryMediaStore()):
        assert not is_spool_reader(value)
        assert not is_media_reader(value)
