"""Laws of blobs: staged, attached, read in parts, and removed only without a holder."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.kernel.subject import law, refuses
from keelbolt.errors import BlobNotFound, InvalidValue
from keelbolt.kernel.blobs import CHUNK_BYTES, Attach, Blob, BlobSource, Detach
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.records import Insert, Put

P = "p"
SHORT_SECONDS = 0.15
SIZES = (0, 1, 100, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 17)


def sample(size: int, *, seed: str = "") -> bytes:
    return hashlib.shake_128(f"{seed}{size}".encode()).digest(size) if size else b""


def name_of(data: bytes) -> Blob:
    return Blob(hashlib.sha256(data).hexdigest(), len(data))


async def stream(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece


async def read(kernel: Kernel, digest: str) -> bytes:
    return await (await kernel.open_blob(P, digest)).read()


async def grace_over() -> None:
    await asyncio.sleep(SHORT_SECONDS + 0.05)


@law()
async def a_blob_is_named_by_its_bytes(kernel: Kernel) -> None:
    """A blob's digest is the SHA-256 of its bytes in hexadecimal; size and bytes are read back unchanged."""
    for size in SIZES:
        data = sample(size)
        blob = await kernel.stage_blob(P, data)
        equal(blob, name_of(data), f"the name of {size} bytes")
        reader = await kernel.open_blob(P, blob.digest)
        equal((reader.blob, reader.size), (blob, size), "blob and size of the reader")
        expect(await reader.read() == data, f"{size} bytes that were read differ from those written")


@law()
async def a_blob_is_written_from_every_kind_of_source(kernel: Kernel) -> None:
    """Bytes, bytearray, memoryview, text, a path, a binary file and a stream of any pieces make the same blob."""
    text = "Grüße, 世界\n" * 40_000
    data = text.encode()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "file"
        path.write_bytes(data)
        pieces = [data[start : start + 70_001] for start in range(0, len(data), 70_001)]
        with path.open("rb") as file:
            sources: tuple[BlobSource, ...] = (
                data,
                bytearray(data),
                memoryview(data),
                text,
                path,
                file,
                io.BytesIO(data),
                stream(*pieces),
                stream(data),
                stream(b"", data[:1], b"", data[1:], b""),
            )
            for source in sources:
                equal(await kernel.stage_blob(P, source), name_of(data), f"the blob of a {type(source).__name__}")
    expect(await read(kernel, name_of(data).digest) == data, "the bytes that were read differ from those written")


@law()
async def the_same_bytes_are_one_blob(kernel: Kernel) -> None:
    """Staging bytes that are stored already, also concurrently and while they are held, returns the same blob."""
    blobs = await asyncio.gather(*(kernel.stage_blob(P, b"same") for _ in range(10)))
    equal(set(blobs), {name_of(b"same")}, "the blobs")
    await kernel.commit(P, Attach(blobs[0].digest, "a"))
    await kernel.stage_blob(P, b"same")
    stats = await kernel.stats()
    equal((stats.blobs, stats.blob_bytes), (1, 4), "the number of blobs in stats")
    equal(await read(kernel, blobs[0].digest), b"same", "the bytes")


@law()
async def a_range_is_read_exactly(kernel: Kernel) -> None:
    """A range has the bytes from its start, included, to its end, not included, across chunks and at the ends."""
    size = 2 * CHUNK_BYTES + 100
    data = sample(size)
    reader = await kernel.open_blob(P, (await kernel.stage_blob(P, data)).digest)
    edges = (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, size - 1, size, size + 50)
    for start in edges:
        for end in edges:
            expect(await reader.range(start, end) == data[start:end], f"the range {start} to {end} has the wrong bytes")
    pieces = [piece async for piece in reader.chunks(5, CHUNK_BYTES + 5)]
    expect(b"".join(pieces) == data[5 : CHUNK_BYTES + 5], "the chunks differ from the bytes written")
    expect(all(len(piece) <= CHUNK_BYTES for piece in pieces), "a chunk is too large")


@law()
async def lines_are_read_one_by_one(kernel: Kernel) -> None:
    """lines yields each line without its line feed: empty and very long lines too, and a last one without line feed."""
    for data in (
        b"",
        b"\n",
        b"one",
        b"one\n",
        b"one\ntwo",
        b"\n\none\r\n\n",
        b"x" * (CHUNK_BYTES - 1) + b"\n" + b"y" * (2 * CHUNK_BYTES) + b"\nend\n",
    ):
        reader = await kernel.open_blob(P, (await kernel.stage_blob(P, data)).digest)
        wanted = data.split(b"\n")
        wanted = wanted if wanted[-1] else wanted[:-1]
        expect([line async for line in reader.lines()] == wanted, f"the lines of {data[:40]!r} are wrong")


@law()
async def an_unknown_blob_is_not_found(kernel: Kernel) -> None:
    """Opening a blob that was never written raises BlobNotFound with its digest."""
    with raises(BlobNotFound) as caught:
        await kernel.open_blob(P, "0" * 64)
    equal(caught().digest, "0" * 64, "the digest of the error")


@law()
async def an_invalid_source_is_refused(kernel: Kernel) -> None:
    """An object that is no source of bytes, or a stream of other objects, raises InvalidValue and stores nothing."""
    for source in (7, None, object(), ["bytes"]):
        with raises(InvalidValue):
            await kernel.stage_blob(P, source)  # type: ignore[arg-type]

    async def text() -> AsyncIterator[str]:
        yield "text"

    with raises(InvalidValue):
        await kernel.stage_blob(P, text())  # type: ignore[arg-type]
    equal((await kernel.stats()).blobs, 0, "the blobs that stats counts")


@law()
async def a_source_that_raises_leaves_no_blob(kernel: Kernel) -> None:
    """If a source raises half way, the call raises the same error and no blob is stored."""

    async def breaking() -> AsyncIterator[bytes]:
        yield sample(CHUNK_BYTES * 2)
        raise OSError("the source broke")

    with raises(OSError):
        await kernel.stage_blob(P, breaking())
    stats = await kernel.stats()
    equal((stats.blobs, stats.blob_bytes), (0, 0), "the number of blobs in stats")
    with raises(BlobNotFound):
        await kernel.open_blob(P, name_of(sample(CHUNK_BYTES * 2)).digest)


# ------------------------------------------------------------------------------------------------- holding and reaping


@law()
async def attach_of_an_unknown_blob_refuses_the_commit(kernel: Kernel) -> None:
    """Attach of a blob that does not exist refuses the whole commit."""
    await refuses(kernel, P, Insert("plain", "a", b""), Attach("0" * 64, "a"), reason="blob")
    expect(await kernel.get(P, "plain", "a") is None, "a record was written with the refused Attach")


@law()
async def a_staged_blob_is_removed_after_its_grace_period(kernel: Kernel) -> None:
    """A blob without a holder exists until its grace period ends; the next sweep removes it."""
    long = await kernel.stage_blob(P, b"long")
    await kernel.sweep()
    expect(await read(kernel, long.digest), "a sweep removed a blob before its grace period ended")
    short = await kernel.stage_blob(P, b"short", keep_seconds=SHORT_SECONDS)
    await grace_over()
    equal((await kernel.sweep()).blobs, 1, "the number of swept blobs")
    with raises(BlobNotFound):
        await kernel.open_blob(P, short.digest)
    await refuses(kernel, P, Attach(short.digest, "a"), reason="blob")
    equal(await read(kernel, long.digest), b"long", "the other blob")
    equal(await kernel.stage_blob(P, b"short"), short, "the same bytes staged again")
    equal(await read(kernel, short.digest), b"short", "the same bytes read again")


@law()
async def a_held_blob_is_never_swept(kernel: Kernel) -> None:
    """A blob with a holder outlives its grace period and every sweep, until its last holder detaches."""
    blob = await kernel.stage_blob(P, b"held", keep_seconds=SHORT_SECONDS)
    await kernel.commit(P, Attach(blob.digest, "a"), Attach(blob.digest, "b"))
    await grace_over()
    equal((await kernel.sweep()).blobs, 0, "the number of swept blobs")
    await kernel.commit(P, Detach(blob.digest, "a"))
    await kernel.sweep()
    equal(await read(kernel, blob.digest), b"held", "the blob that one holder still holds")


@law()
async def a_detached_blob_has_a_grace_period(kernel: Kernel) -> None:
    """After its last holder detaches, a blob exists for a grace period: it can be read and attached again."""
    blob = await kernel.stage_blob(P, b"held", keep_seconds=SHORT_SECONDS)
    await kernel.commit(P, Attach(blob.digest, "a"))
    await grace_over()
    await kernel.commit(P, Detach(blob.digest, "a"))
    await kernel.sweep()
    equal(await read(kernel, blob.digest), b"held", "the blob after the last holder let go")
    await kernel.commit(P, Attach(blob.digest, "b"))
    equal(await read(kernel, blob.digest), b"held", "the blob attached again")


@law()
async def attach_and_detach_may_be_repeated(kernel: Kernel) -> None:
    """A holder that attaches twice holds the blob once; Detach of a blob that is not held is no error."""
    blob = await kernel.stage_blob(P, b"held", keep_seconds=SHORT_SECONDS)
    other = await kernel.stage_blob(P, b"other")
    await kernel.commit(P, Detach(blob.digest, "other"), Detach("0" * 64, "other"))
    for _ in range(2):
        await kernel.commit(P, Attach(blob.digest, "a"))
    await kernel.commit(P, Attach(blob.digest, "b"))
    await kernel.commit(P, Detach(blob.digest, "a"), Detach(other.digest, "a"))
    await kernel.commit(P, Detach(blob.digest, "a"))
    mine = await kernel.stage_blob(P, b"mine", keep_seconds=SHORT_SECONDS)
    await kernel.commit(P, Attach(mine.digest, "me"))
    await kernel.commit(P, Detach(mine.digest, "stranger"))
    await grace_over()
    await kernel.sweep()
    equal(await read(kernel, blob.digest), b"held", "the blob that b holds")
    equal(await read(kernel, mine.digest), b"mine", "the blob that a stranger let go")


@law()
async def staging_again_extends_the_grace_period(kernel: Kernel) -> None:
    """Staging bytes that are stored already extends their grace period at least to the new one."""
    blob = await kernel.stage_blob(P, b"bytes", keep_seconds=SHORT_SECONDS)
    await kernel.stage_blob(P, b"bytes", keep_seconds=60.0)
    await kernel.stage_blob(P, b"bytes", keep_seconds=SHORT_SECONDS)
    await grace_over()
    equal((await kernel.sweep()).blobs, 0, "the number of swept blobs")
    equal(await read(kernel, blob.digest), b"bytes", "the blob")


@law()
async def a_blob_commits_with_its_record(kernel: Kernel) -> None:
    """A blob is attached together with the other writes of its commit, or not at all."""
    blob = await kernel.stage_blob(P, b"bytes", keep_seconds=SHORT_SECONDS)
    await kernel.commit(P, Put("plain", "a", b""))
    await refuses(kernel, P, Attach(blob.digest, "a"), Insert("plain", "a", b""), reason="absent", found=1)
    await grace_over()
    equal((await kernel.sweep()).blobs, 1, "the number of swept blobs, when a refused commit would have held it")


@law()
async def a_sweep_removes_up_to_its_limit_of_blobs(kernel: Kernel) -> None:
    """A sweep removes at most ``limit`` blobs, and the next sweep continues."""
    for number in range(5):
        await kernel.stage_blob(P, str(number), keep_seconds=0.01)
    await grace_over()
    equal([(await kernel.sweep(limit=2)).blobs for _ in range(4)], [2, 2, 1, 0], "the numbers of swept blobs")
