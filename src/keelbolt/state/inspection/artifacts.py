"""Artifacts: their metadata, a preview, and their bytes. Inspecting an artifact does not count as use."""

from __future__ import annotations

import time
from typing import Any

from keelbolt.data.display import plain, when
from keelbolt.errors import BlobNotFound
from keelbolt.kernel import BlobReader, Query, Record, Scope
from keelbolt.state.artifacts.record import NEVER, ArtifactRecord
from keelbolt.state.families import ARTIFACTS
from keelbolt.state.inspection.shown import reference

PREVIEW_BYTES = 4096


class ArtifactInspection:
    """The artifacts of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def list(self, *, session: str | None = None, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
        """List a session's artifacts, the last used first; without a session, all, the latest expiry first."""
        query = Query(ARTIFACTS, order="expires", since=self._now() + 1, newest_first=True)
        if session is not None:
            query = Query(ARTIFACTS, {"session": reference(session)}, order="rank", newest_first=True)
        page = await self._scope.find(query, limit=limit, cursor=cursor)
        found = [described(record) for record in page.records if self._lasts(record)]
        return {"artifacts": found, "nextPageToken": page.cursor or ""}

    async def show(self, artifact_id: str) -> dict[str, Any] | None:
        """Return the metadata of an artifact, with a preview if it is text; or None."""
        found = await self.open(artifact_id)
        if found is None:
            return None
        record, reader = found
        return {**described(record), "preview": _preview(await reader.range(0, PREVIEW_BYTES), reader.size)}

    async def open(self, artifact_id: str) -> tuple[Record, BlobReader] | None:
        """Return its record and a reader of its bytes; or None."""
        record = await self._scope.get(ARTIFACTS, reference(artifact_id))
        if record is None or not self._lasts(record):
            return None
        try:
            return record, await self._scope.open_blob(ArtifactRecord.of(record).sha256)
        except BlobNotFound:  # deleted meanwhile
            return None

    def _lasts(self, record: Record) -> bool:
        return ArtifactRecord.of(record).expires > self._now()

    def _now(self) -> int:
        return int(time.time() * 1_000_000)


def described(record: Record) -> dict[str, Any]:
    """Return the metadata of an artifact."""
    kept = ArtifactRecord.of(record)
    known = kept.described()
    return {
        "id": kept.id,
        "ref": record.key,
        "filename": kept.filename,
        "mediaType": kept.mime_type,
        "size": kept.size,
        "sha256": kept.sha256,
        "namespace": kept.namespace,
        "scope": known["scope"],
        "source": plain(kept.source, large=True),
        "created": when(kept.created),
        "expires": None if kept.expires >= NEVER else when(kept.expires),
    }


def _preview(start: bytes, size: int) -> dict[str, Any] | None:
    """Return the beginning of a text, or None if the bytes are not text."""
    text = start.decode(errors="replace")
    whole = len(start) == size
    if not whole:
        text = text.rstrip("\ufffd")  # an incomplete character
    if "\0" in text or "\ufffd" in text:
        return None
    return {"text": text, "whole": whole}
