"""Finds the artifact store of a StateStore."""

from __future__ import annotations

from typing import Any

from keelbolt.state.artifacts.protocol import SupportsArtifactStore


def discover_artifact_store(state_store: Any) -> SupportsArtifactStore | None:
    """Its ``artifact_store``, or itself where it has the methods of one, or None."""
    for candidate in (getattr(state_store, "artifact_store", None), state_store):
        if isinstance(candidate, SupportsArtifactStore):
            return candidate
    return None
