"""The interface of artifact stores, the search for a StateStore's artifact store, and the artifacts of one session.

penguiflow 3 recognises an artifact store by the seven methods of the interface. Tools get the view of one session, so
that they can't access the artifacts of other sessions.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from keelbolt.state.types import ArtifactScope


@runtime_checkable
class SupportsArtifactStore(Protocol):
    """Stores bytes and long texts and returns references to them."""

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
        """Store bytes and return an ArtifactRef."""

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

    async def get(self, artifact_id: str) -> bytes | None:
        """Return the bytes, or None."""

    async def get_ref(self, artifact_id: str) -> Any | None:
        """Return the reference, or None."""

    async def delete(self, artifact_id: str) -> bool:
        """Delete the artifact and return whether it existed."""

    async def exists(self, artifact_id: str) -> bool:
        """Return whether the artifact exists."""

    async def list(self, *, scope: Any | None = None) -> list[Any]:
        """Return the references whose scope has these fields; a field that is None matches all."""


# --------------------------------------------------------------------------------------------------------------- scoped


_GUARDED = ("tenant_id", "user_id", "session_id")


class ScopedArtifacts:
    """Writes with a fixed scope. Artifacts of other scopes are treated as missing.

    An artifact is accessible if tenant, user and session are equal wherever both scopes set them. Traces are not
    compared, so that a session can read artifacts of its earlier traces.
    """

    __slots__ = ("_scope", "_store")

    _scope: ArtifactScope
    _store: SupportsArtifactStore

    def __init__(
        self,
        store: SupportsArtifactStore,
        *,
        tenant_id: str | None,
        user_id: str | None,
        session_id: str | None,
        trace_id: str | None,
    ) -> None:
        scope = ArtifactScope(tenant_id=tenant_id, user_id=user_id, session_id=session_id, trace_id=trace_id)
        object.__setattr__(self, "_store", store)
        object.__setattr__(self, "_scope", scope)

    def __setattr__(self, name: str, value: Any) -> None:
        message = "ScopedArtifacts is immutable"
        raise AttributeError(message)

    @property
    def scope(self) -> ArtifactScope:
        """The fixed scope."""
        return self._scope.model_copy()

    async def upload(
        self,
        data: bytes | str,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """Store bytes or a text and return an ArtifactRef."""
        named: dict[str, Any] = {"filename": filename, "namespace": namespace, "scope": self.scope, "meta": meta}
        if isinstance(data, str):
            return await self._store.put_text(data, mime_type=mime_type or "text/plain", **named)
        return await self._store.put_bytes(data, mime_type=mime_type, **named)

    async def download(self, artifact_id: str) -> bytes | None:
        """Return the bytes, or None."""
        return None if await self.get_metadata(artifact_id) is None else await self._store.get(artifact_id)

    async def get_metadata(self, artifact_id: str) -> Any | None:
        """Return the reference, or None."""
        ref = await self._store.get_ref(artifact_id)
        return ref if ref is not None and self._reaches(ref.scope) else None

    async def list(self) -> list[Any]:
        """Return the references of this tenant, user and session."""
        return await self._store.list(scope=self._scope.model_copy(update={"trace_id": None}))

    async def exists(self, artifact_id: str) -> bool:
        """Return whether the artifact exists."""
        return await self.get_metadata(artifact_id) is not None

    async def delete(self, artifact_id: str) -> bool:
        """Delete the artifact and return whether it existed."""
        return await self.get_metadata(artifact_id) is not None and await self._store.delete(artifact_id)

    def _reaches(self, scope: Any | None) -> bool:
        if scope is None:
            return True
        for field in _GUARDED:
            mine, its = getattr(self._scope, field), getattr(scope, field)
            if mine is not None and its is not None and mine != its:
                return False
        return True


# ------------------------------------------------------------------------------------------------------------ discovery


def discover_artifact_store(state_store: Any) -> SupportsArtifactStore | None:
    """Return its ``artifact_store``, or the store itself if it has the methods of an artifact store, or None."""
    for candidate in (getattr(state_store, "artifact_store", None), state_store):
        if isinstance(candidate, SupportsArtifactStore):
            return candidate
    return None
