"""The artifact store of a StateStore: the seven methods that penguiflow requires, and streams for large artifacts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from weakref import WeakKeyDictionary

from keelbolt.errors import (
    ArtifactTooLarge,
    BlobNotFound,
    InvalidState,
    StateNotLoaded,
    StateNotSaved,
    StateTimeout,
    StorageError,
)
from keelbolt.kernel.blobs import BlobReader, BlobSource
from keelbolt.kernel.scope import Scope
from keelbolt.state.artifacts.record import ArtifactRecord, Owner, Retention
from keelbolt.state.artifacts.repository import ArtifactRepository, WriteOrder
from keelbolt.state.engine.connection import tell_load_failed, tell_save_failed
from keelbolt.state.types import ArtifactRetentionConfig

if TYPE_CHECKING:
    from keelbolt.state.store_context import StoreContext

T = TypeVar("T")

SLOWEST = 1_000_000  # bytes per second; the timeout of a put is extended by its size at this rate

Stream = AsyncIterable[bytes] | BinaryIO | PathLike[str]


PUTS = 64  # concurrent puts per event loop


class ArtifactReader(BlobReader):
    """Reads one artifact of any size in chunks."""

    def __init__(self, ref: Any, inner: BlobReader, desk: StoreContext) -> None:
        super().__init__(inner.blob)
        self.ref = ref
        self._inner = inner
        self._desk = desk

    async def chunk(self, number: int) -> bytes:
        """Return the chunk with this number, from 0, verified. Raise StateTimeout if the read takes too long."""
        async with _limited(self._desk.timeout_seconds):
            return await self._desk.host.ask(lambda _kernel: self._inner.chunk(number))


class ArtifactStore:
    """The artifacts of a state store. Every limit of ``retention`` holds, also with concurrent writers.

    If an artifact can't be stored, a put raises under every policy: ArtifactTooLarge, ArtifactLimitExceeded, or
    StateNotSaved if the storage fails. ``clock`` is Unix time in seconds.
    """

    def __init__(
        self, desk: StoreContext, *, retention: Retention | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._desk = desk
        self._order = WriteOrder(clock)
        self._puts: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self.retention: Retention = retention or ArtifactRetentionConfig()

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
        """Store bytes and return an ArtifactRef. Equal bytes of a session are stored once; their expiry restarts."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidState(f"put_bytes takes bytes, not {type(data).__name__}")
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
        """Store a text as UTF-8 and return an ArtifactRef."""
        if not isinstance(text, str):
            raise InvalidState(f"put_text takes a string, not {type(text).__name__}")
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise InvalidState(f"put_text takes text that UTF-8 can encode: {error.reason}") from error
        return await self._put(data, mime_type, filename, namespace, scope, meta)

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
        """Store the content of a stream, an open file or the file at this path, without loading it into memory."""
        if isinstance(source, PathLike):
            size = os.stat(source).st_size  # noqa: PTH116  (checks the size before anything is copied)
            if size > self.retention.max_artifact_bytes:
                raise ArtifactTooLarge(f"the file has {size} bytes; the limit is {self.retention.max_artifact_bytes}")
        elif not isinstance(source, AsyncIterable) and not hasattr(source, "read"):
            kind = type(source).__name__
            raise InvalidState(f"put_stream takes an async iterator, a binary file or a Path, not {kind}")
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
        named = {"mime_type": mime_type, "filename": filename, "namespace": namespace, "scope": scope}

        async def put(room: Scope) -> ArtifactRecord:
            return await self._on(room).put(source, **named, meta=dict(meta or {}))

        seconds = self._desk.timeout_seconds + len(source) / SLOWEST if isinstance(source, bytes) else None
        try:
            # The timeout of a put starts when the put is admitted, since concurrent puts wait for each other.
            async with self._admitted() if seconds is not None else nullcontext(), _limited(seconds):
                return self._ref(await self._desk.host.ask(self._desk.scoped(put)))
        except (StorageError, StateTimeout) as error:
            tell_save_failed("put_artifact", None, error)
            raise StateNotSaved("put_artifact", error) from error

    # --------------------------------------------------------------------------------------------------------- read

    async def get(self, artifact_id: str) -> bytes | None:
        """Return the bytes, or None."""
        reader = await self.open(artifact_id)
        if reader is None:
            return None
        try:
            return await reader.read()
        except BlobNotFound:
            return None  # deleted meanwhile
        except (StorageError, StateTimeout) as error:
            tell_load_failed("get_artifact", None, error, key=artifact_id)
            raise StateNotLoaded("get_artifact", error) from error

    async def open(self, artifact_id: str) -> ArtifactReader | None:
        """Return a reader of its bytes, or None. The bytes can be read until the artifact is deleted."""

        async def opened(shelf: ArtifactRepository) -> tuple[ArtifactRecord, BlobReader] | None:
            kept = await shelf.find(artifact_id)
            reader = None if kept is None else await shelf.open(kept)
            return None if kept is None or reader is None else (kept, reader)

        found = await self._load("open_artifact", opened)
        return None if found is None else ArtifactReader(self._ref(found[0]), found[1], self._desk)

    async def get_ref(self, artifact_id: str) -> Any | None:
        """Return the reference, or None."""
        kept = await self._find(artifact_id)
        return None if kept is None else self._ref(kept)

    async def get_with_session_check(self, artifact_id: str, session_id: str) -> bytes | None:
        """Return the bytes, or None if they are missing or belong to another session.

        Artifacts without a session belong to ``default``.
        """
        kept = await self._find(artifact_id)
        owner = None if kept is None else kept.owner.session_id or "default"
        return await self.get(artifact_id) if owner == session_id else None

    async def exists(self, artifact_id: str) -> bool:
        """Return whether the artifact exists."""
        return await self._find(artifact_id) is not None

    async def list(self, *, scope: Any | None = None) -> list[Any]:
        """Return the references whose scope has these fields, in order of creation; a None field matches all."""
        wanted = Owner.of(scope)
        found = await self._load("list_artifacts", lambda shelf: shelf.list(wanted))
        return [self._ref(kept) for kept in found]

    async def delete(self, artifact_id: str) -> bool:
        """Delete the artifact and return whether it existed."""
        return await self._load("delete_artifact", lambda shelf: shelf.delete(artifact_id))

    async def sweep(self) -> int:
        """Remove expired artifacts and return their number. Reads ignore expired artifacts even before a sweep."""
        return await self._load("sweep_artifacts", lambda shelf: shelf.sweep())

    # ------------------------------------------------------------------------------------------------------ internal

    def _admitted(self) -> asyncio.Semaphore:
        """Return the semaphore that limits the concurrent puts of this event loop."""
        return self._puts.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(PUTS))

    async def _find(self, artifact_id: str) -> ArtifactRecord | None:
        return await self._load("get_artifact_ref", lambda shelf: shelf.find(artifact_id))

    async def _load(self, method: str, function: Callable[[ArtifactRepository], Awaitable[T]]) -> T:
        return await self._desk.load(method, lambda room: function(self._on(room)))

    def _on(self, room: Scope) -> ArtifactRepository:
        return ArtifactRepository(room, self.retention, self._order, self._desk.session)

    def _ref(self, kept: ArtifactRecord) -> Any:
        return self._desk.types.make("ArtifactRef", kept.described())


@asynccontextmanager
async def _limited(seconds: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise StateTimeout(f"the storage did not respond within {seconds:g} seconds") from None


def _brought(source: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Wrap a stream of the caller's loop for the kernel's loop: each chunk is fetched in the caller's loop."""
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
