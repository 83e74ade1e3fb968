"""Finds the artifact store of a StateStore."""

from __future__ import annotations

from typing import Any

from keelbolt.state.artifacts.protocol import SupportsArtifactStore


def discover_artifact_store(state_store: Any) -> SupportsArtifactStore | None:
    """Return its ``artifact_store``, or the store itself if it has the methods of an artifact store, or None."""
    for candidate in (getattr(state_store, "artifact_store", None), state_store):
        if isinstance(candidate, SupportsArtifactStore):
            return candidate
    return None
