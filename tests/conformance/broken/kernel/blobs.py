"""Faults of blobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from keelbolt.errors import BlobNotFound, InvalidValue, KeelboltError
from keelbolt.kernel.blobs import Attach, Blob, BlobReader, BlobSource, Detach
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Swept
from tests.conformance.broken.kernel.fault import NOTHING, Broken, caught_by


@caught_by("a_held_blob_is_never_swept")
class HeldBlobsAreReaped(Broken):
    async def _sweep(self, limit: int) -> Swept:
        held, self._holders = self._holders, {}
        try:
            return await super()._sweep(limit)
        finally:
            self._holders = held


@caught_by("a_staged_blob_is_removed_after_its_grace_period")
class StagedBlobsStayForEver(Broken):
    async def stage_blob(self, partition: str, source: BlobSource, *, keep_seconds: float = 1.0) -> Blob:
        return await super().stage_blob(partition, source)


@caught_by("staging_again_extends_the_grace_period")
class StagingAgainShortensTheGrace(Broken):
    async def stage_blob(self, partition: str, source: BlobSource, *, keep_seconds: float = 60.0) -> Blob:
        blob = await super().stage_blob(partition, source, keep_seconds=keep_seconds)
        upload = self._uploads[self._blobs[partition, blob.digest]]
        upload.expires_at = self.clock.steady() + int(keep_seconds * 1_000_000)
        return blob


@caught_by("a_detached_blob_has_a_grace_period")
class BlobsGoWithTheirLastHolder(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        for operation in operations:
            if isinstance(operation, Detach) and not self._holders.get((partition, operation.digest), {"unknown"}):
                self._uploads[self._blobs[partition, operation.digest]].expires_at = 0
        return end


@caught_by("attach_of_an_unknown_blob_refuses_the_commit")
class UnknownBlobsCanBeAttached(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Attach) and (partition, operation.digest) not in self._blobs:
            return NOTHING
        return operation


@caught_by("attach_and_detach_may_be_repeated")
class OneDetachLetsAllHoldersGo(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        for operation in operations:
            if isinstance(operation, Detach):
                self._holders.get((partition, operation.digest), set()).clear()
        return end


@caught_by("a_blob_commits_with_its_record")
class ARefusedCommitStillHolds(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        if end.exception() is not None and (held := tuple(o for o in operations if isinstance(o, Attach))):
            super()._submit(partition, held)
        return end


@caught_by("a_blob_of_another_partition_does_not_exist")
class BlobsLeakIntoOtherPartitions(Broken):
    async def _blob(self, partition: str, digest: str) -> tuple[int, int] | None:
        for other in ("p", "q"):
            found = await super()._blob(other, digest)
            if found is not None:
                return found
        return None


class _OneTooFew(BlobReader):
    def __init__(self, reader: BlobReader) -> None:
        super().__init__(reader.blob)
        self._reader = reader

    async def chunk(self, number: int) -> bytes:
        return await self._reader.chunk(number)

    async def range(self, start: int, end: int) -> bytes:
        return (await super().range(start, end))[:-1]


@caught_by("a_range_is_read_exactly")
class RangesEndTooEarly(Broken):
    async def open_blob(self, partition: str, digest: str) -> BlobReader:
        return _OneTooFew(await super().open_blob(partition, digest))


@caught_by("a_blob_is_named_by_its_bytes")
class DigestsAreUpperCase(Broken):
    async def stage_blob(self, partition: str, source: BlobSource, **how: Any) -> Blob:
        blob = await super().stage_blob(partition, source, **how)
        return replace(blob, digest=blob.digest.upper())


@caught_by("a_blob_is_written_from_every_kind_of_source")
class TextIsEncodedAnotherWay(Broken):
    async def stage_blob(self, partition: str, source: BlobSource, **how: Any) -> Blob:
        return await super().stage_blob(
            partition, source.encode("utf-16") if isinstance(source, str) else source, **how
        )


@caught_by("the_same_bytes_are_one_blob")
class EqualBytesAreKeptTwice(Broken):
    async def _stage_done(self, partition: str, upload: int, blob: Blob, keep_seconds: float) -> bool:
        self._blobs.pop((partition, blob.digest), None)
        return await super()._stage_done(partition, upload, blob, keep_seconds)


@caught_by("a_source_that_raises_leaves_no_blob")
class ABrokenStreamIsABlob(Broken):
    async def stage_blob(self, partition: str, source: BlobSource, **how: Any) -> Blob:
        try:
            return await super().stage_blob(partition, source, **how)
        except KeelboltError:
            raise
        except OSError:
            await super().stage_blob(partition, b"what came before", **how)
            raise


class _Splits(_OneTooFew):
    async def lines(self) -> AsyncIterator[bytes]:
        async for chunk in self.chunks():
            for line in chunk.split(b"\n"):
                yield line


@caught_by("lines_are_read_one_by_one")
class LinesEndWithTheChunk(Broken):
    async def open_blob(self, partition: str, digest: str) -> BlobReader:
        return _Splits(await super().open_blob(partition, digest))


@caught_by("an_unknown_blob_is_not_found")
class UnknownBlobsAreEmpty(Broken):
    async def open_blob(self, partition: str, digest: str) -> BlobReader:
        try:
            return await super().open_blob(partition, digest)
        except BlobNotFound:
            return await super().open_blob(partition, (await self.stage_blob(partition, b"")).digest)


@caught_by("an_invalid_source_is_refused")
class AnythingIsASource(Broken):
    async def stage_blob(self, partition: str, source: Any, **how: Any) -> Blob:
        try:
            return await super().stage_blob(partition, source, **how)
        except InvalidValue:
            return await super().stage_blob(partition, str(source), **how)


@caught_by("a_sweep_removes_up_to_its_limit_of_blobs")
class ASweepRemovesAllBlobs(Broken):
    async def _sweep(self, limit: int) -> Swept:
        return await super()._sweep(limit * 10)
