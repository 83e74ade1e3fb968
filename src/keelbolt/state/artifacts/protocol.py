"""What an artifact store can do: the seven methods by which penguiflow 3 recognises one."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class SupportsArtifactStore(Protocol):
    """Keeps bytes and long texts, and gives references to them."""

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
        """Keep bytes; answers an ArtifactRef."""

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

    async def get(self, artifact_id: str) -> bytes | None:
        """The bytes, or None."""

    async def get_ref(self, artifact_id: str) -> Any | None:
        """The reference, or None."""

    async def delete(self, artifact_id: str) -> bool:
        """Whether there was one to delete."""

    async def exists(self, artifact_id: str) -> bool:
        """Whether there is one."""

    async def list(self, *, scope: Any | None = None) -> list[Any]:
        """The references whose scope has these fields; a field that is None matches all."""
