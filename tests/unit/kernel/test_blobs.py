"""Reading blobs: whole, by range and by lines, across chunk boundaries, with checksums."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keelbolt.errors import StorageCorrupt
from keelbolt.kernel.blobs import Blob, BlobReader

SMALL = 4  # bytes per chunk in these tests


class Held(BlobReader):
    """A blob in memory that records the chunks read."""

    def __init__(self, data: bytes, *, size: int = SMALL) -> None:
        super().__init__(Blob(hashlib.sha256(data).hexdigest(), len(data)))
        self.data = data
        self.numbers: list[int] = []
        self._chunk = size

    async def chunk(self, number: int) -> bytes:
        self.numbers.append(number)
        return self.data[number * self._chunk : (number + 1) * self._chunk]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keelbolt.kernel.blobs.CHUNK_BYTES", SMALL)


def lines_of(data: bytes) -> list[bytes]:
    """Return the expected lines: separated by line feeds, which the last one may lack."""
    *whole, rest = data.split(b"\n")
    return whole + ([rest] if rest else [])


TEXTS = st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r\n", b"\0", b"12345"]), max_size=12).map(b"".join)


@settings(max_examples=200)
@given(TEXTS)
async def test_lines_across_chunks(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keelbolt.kernel.blobs.CHUNK_BYTES", SMALL)
        assert [line async for line in Held(data).lines()] == lines_of(data)


@settings(max_examples=200)
@given(st.binary(max_size=20), st.integers(-3, 25), st.integers(-3, 25))
async def test_ranges(data: bytes, start: int, end: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keelbolt.kernel.blobs.CHUNK_BYTES", SMALL)
        reader = Held(data)
        assert await reader.range(start, end) == data[max(start, 0) : max(end, 0)]
        assert reader.size == len(data)
        assert await reader.read() == data


async def test_a_range_reads_only_the_chunks_it_needs() -> None:
    reader = Held(bytes(100))
    assert await reader.range(9, 13) == bytes(4)
    assert reader.numbers == [2, 3]


class CountingBytes(bytes):
    """Bytes that count how many bytes are copied in front of them."""

    copied = 0

    def __radd__(self, other: bytes) -> bytes:
        CountingBytes.copied += len(other)
        return bytes(other) + bytes(self)


class CountedPieces(Held):
    async def chunks(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        async for data in super().chunks(start, end):
            yield CountingBytes(data)


async def test_a_long_line_is_put_together_once() -> None:
    """A blob without line feeds takes linear time: no piece is copied repeatedly."""
    CountingBytes.copied = 0
    assert [line async for line in CountedPieces(b"x" * 4000).lines()] == [b"x" * 4000]
    assert CountingBytes.copied <= 4000


async def test_changed_bytes_are_detected() -> None:
    reader = Held(b"abcdefgh")
    reader.data = b"abcdefgX"
    with pytest.raises(StorageCorrupt):
        await reader.read()


async def test_missing_bytes_are_detected() -> None:
    reader = Held(b"abcdefgh")
    reader.data = b"abcd"
    with pytest.raises(StorageCorrupt):
        await reader.range(2, 6)
    with pytest.raises(StorageCorrupt):
        _ = [line async for line in reader.lines()]
