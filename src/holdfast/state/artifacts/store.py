"""The artifact store of a StateStore: the seven methods that penguiflow asks for, and streams for what is large."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from holdfast.errors import ArtifactTooLarge
from holdfast.state.artifacts.ids import Owner
from holdfast.state.artifacts.record import Kept
from holdfast.state.artifacts.shelf import Shelf
from holdfast.state.artifacts.totals import Retention
from holdfast.state.binding import Types
from holdfast.state.types import ArtifactRetentionConfig
from holdfast.storage.blobs import BlobReader, BlobSource
from holdfast.storage.scope import Scope

if TYPE_CHECKING:
    from holdfast.state.host import Host
    from holdfast.storage.contract import Kernel

T = TypeVar("T")

Stream = AsyncIterable[bytes] | BinaryIO | PathLike[str]


class ArtifactReader(BlobReader):
    """Reads one artifact, chunk by chunk, whatever its size."""

    def __init__(self, ref: Any, inner: BlobReader, host: Host) -> None:
        super().__init__(inner.blob)
        self.ref = ref
        self._inner = inner
        self._host = host

    async def chunk(self, number: int) -> bytes:
        """The chunk with this number, from 0, checked."""

        async def read(_kernel: Kernel) -> bytes:
            return await self._inner.chunk(number)

        return await self._host.ask(read)


class ArtifactStore:
    """Artifacts on the kernel of a state store. Every limit of ``retention`` holds, whoever else writes.

    What can't be kept raises: ArtifactTooLarge, ArtifactLimitExceeded, or what the storage raises.
    """

    def __init__(
        self,
        host: Host,
        partition: str,
        *,
        types: Types | None = None,
        retention: Retention | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._partition = partition
        self._types = types or Types()
        self.retention: Retention = retention or ArtifactRetentionConfig()
        self._clock = clock
        self._shelf: tuple[Kernel, Shelf] | None = None

    # ---------------------------------------------------------------------------------------------------------- put

    async def put_bytes(
        self,
        data: bytes,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        scope: Any | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """Keep bytes; answers an ArtifactRef. The same bytes of the same session are kept once, from now on."""
        return await self._put(bytes(data), mime_type, filename, namespace, scope, meta)

    async def put_text(
        self,
        text: str,
        *,
        mime_type: str = "text/plain",
        filename: str | None = None,
        namespace: str | None = None,
        scope: Any | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """Keep a text as UTF-8; answers an ArtifactRef."""
        return await self._put(text.encode(), mime_type, filename, namespace, scope, meta)

    async def put_stream(
        self,
        source: Stream,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        scope: Any | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """Keep what a stream, an open file or the file of this path holds, without holding it in memory."""
        if isinstance(source, PathLike):
            size = os.stat(source).st_size  # noqa: PTH116  (a look, so that nothing is copied in vain)
            if size > self.retention.max_artifact_bytes:
                raise ArtifactTooLarge(f"a file of {size} bytes; one may have {self.retention.max_artifact_bytes}")
        given: BlobSource = _brought(source) if isinstance(source, AsyncIterable) else source
        return await self._put(given, mime_type, filename, namespace, scope, meta)

    async def _put(
        self,
        source: BlobSource,
        mime_type: str | None,
        filename: str | None,
        namespace: str | None,
        scope: Any | None,
        meta: dict[str, Any] | None,
    ) -> Any:
        kept = await self._ask(
            lambda shelf: shelf.put(
                source,
                mime_type=mime_type,
                filename=filename,
                namespace=namespace,
                scope=scope,
                meta=dict(meta or {}),
            )
        )
        return self._ref(kept)

    # --------------------------------------------------------------------------------------------------------- read

    async def get(self, artifact_id: str) -> bytes | None:
        """The bytes, or None."""

        async def read(shelf: Shelf) -> bytes | None:
            reader = await shelf.open(artifact_id)
            return None if reader is None else await reader.read()

        return await self._ask(read)

    async def open(self, artifact_id: str) -> ArtifactReader | None:
        """A reader of its bytes, or None. They can be read as long as the artifact is not deleted."""

        async def opened(shelf: Shelf) -> tuple[Kept, BlobReader] | None:
            kept, reader = await shelf.find(artifact_id), await shelf.open(artifact_id)
            return None if kept is None or reader is None else (kept, reader)

        found = await self._ask(opened)
        return None if found is None else ArtifactReader(self._ref(found[0]), found[1], self._host)

    async def get_ref(self, artifact_id: str) -> Any | None:
        """The reference, or None."""
        kept = await self._ask(lambda shelf: shelf.find(artifact_id))
        return None if kept is None else self._ref(kept)

    async def get_with_session_check(self, artifact_id: str, session_id: str) -> bytes | None:
        """The bytes, or None: also where they belong to another session."""
        kept = await self._ask(lambda shelf: shelf.find(artifact_id))
        return None if kept is None or kept.owner.session_id != session_id else await self.get(artifact_id)

    async def exists(self, artifact_id: str) -> bool:
        """Whether there is one."""
        return await self._ask(lambda shelf: shelf.find(artifact_id)) is not None

    async def list(self, *, scope: Any | None = None) -> list[Any]:
        """The references whose scope has these fields, as they came; a field that is None matches all."""
        return [self._ref(kept) for kept in await self._ask(lambda shelf: shelf.list(Owner.of(scope)))]

    async def delete(self, artifact_id: str) -> bool:
        """Whether there was one to delete."""
        return await self._ask(lambda shelf: shelf.delete(artifact_id))

    async def sweep(self) -> int:
        """Remove what has expired; answers how many. Nobody sees them any more before that either."""
        return await self._ask(lambda shelf: shelf.sweep())

    # ------------------------------------------------------------------------------------------------------ plumbing

    async def _ask(self, function: Callable[[Shelf], Awaitable[T]]) -> T:
        async def on_shelf(kernel: Kernel) -> T:
            if self._shelf is None or self._shelf[0] is not kernel:  # the storage was opened anew
                room = Scope(kernel, self._partition)
                self._shelf = (kernel, Shelf(room, self.retention, clock=self._clock))
            return await function(self._shelf[1])

        return await self._host.ask(on_shelf)

    def _ref(self, kept: Kept) -> Any:
        return self._types.make("ArtifactRef", kept.described())


def _brought(source: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The stream, which belongs to the caller's loop, for the loop of the kernel: each chunk is fetched over there."""
    home, iterator = asyncio.get_running_loop(), aiter(source)

    async def following() -> bytes | None:
        return await anext(iterator, None)

    async def chunks() -> AsyncIterator[bytes]:
        while True:
            here = asyncio.get_running_loop() is home
            chunk = await (
                following() if here else asyncio.wrap_future(asyncio.run_coroutine_threadsafe(following(), home))
            )
            if chunk is None:
                return
            yield chunk

    return chunks()
