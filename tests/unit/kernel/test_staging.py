"""Every kind of source gives the same chunks, and is never read whole at once."""

from __future__ import annotations

import array
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keelbolt.errors import InvalidValue
from keelbolt.kernel.blobs import CHUNK_BYTES, chunks_of


class Trickle(io.RawIOBase):
    """A binary file that returns fewer bytes than requested, like pipes and sockets."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data = io.BytesIO(data)
        self._step = step
        self.most = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        self.most = max(self.most, size)
        return self._data.read(min(size, self._step))


async def stream(data: bytes, sizes: list[int]) -> AsyncIterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


async def cut(source: Any) -> list[bytes]:
    return [chunk async for chunk in chunks_of(source)]


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
async def test_every_kind_of_source_gives_the_same_chunks(size: int, tmp_path: Path) -> None:
    data = bytes(number * 7 % 251 for number in range(size))
    expected = [data[start : start + CHUNK_BYTES] for start in range(0, size, CHUNK_BYTES)]
    path = tmp_path / "source"
    path.write_bytes(data)
    with path.open("rb") as file:
        for source in (
            data,
            bytearray(data),
            memoryview(data),
            path,
            file,
            io.BytesIO(data),
            Trickle(data, 100_000),
            stream(data, [1, CHUNK_BYTES, 5]),
        ):
            chunks = await cut(source)
            assert chunks == expected, type(source).__name__
            assert all(type(chunk) is bytes for chunk in chunks)


@settings(max_examples=50)
@given(st.binary(max_size=60), st.lists(st.integers(0, 20), max_size=6))
async def test_the_pieces_of_a_stream_do_not_matter(data: bytes, sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keelbolt.kernel.blobs.CHUNK_BYTES", 8)
        chunks = await cut(stream(data, sizes))
    assert chunks == [data[start : start + 8] for start in range(0, len(data), 8)]


async def test_text_is_utf8() -> None:
    assert await cut("naïve\0😀") == ["naïve\0😀".encode()]


async def test_a_view_of_anything_is_its_bytes() -> None:
    assert await cut(memoryview(array.array("H", [1, 2]))) == [array.array("H", [1, 2]).tobytes()]
    assert await cut(memoryview(b"abcdef")[::2]) == [b"ace"]


async def test_a_file_is_read_a_chunk_at_a_time() -> None:
    file = Trickle(b"x" * 10, 3)
    assert await cut(file) == [b"x" * 10]
    assert file.most == CHUNK_BYTES


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (7, "not int"),
        (None, "not NoneType"),
        ([b"a"], "not list"),
        ("\ud800", "encode it to bytes yourself"),
        (io.StringIO("text"), "must yield bytes, not str"),
    ],
)
async def test_an_invalid_source_is_refused(source: Any, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        await cut(source)


async def test_a_stream_of_text_is_refused() -> None:
    async def texts() -> AsyncIterator[str]:
        yield "text"

    with pytest.raises(InvalidValue, match="must yield bytes, not str"):
        await cut(texts())
