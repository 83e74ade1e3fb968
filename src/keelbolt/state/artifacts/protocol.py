"""The interface of an artifact store: the seven methods by which penguiflow 3 recognises one."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


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
