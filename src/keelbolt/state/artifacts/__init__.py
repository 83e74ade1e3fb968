"""Artifacts: bytes and long texts stored beside the conversation. A model sees only references to them."""

from __future__ import annotations

from keelbolt.state.artifacts.protocol import ScopedArtifacts, SupportsArtifactStore, discover_artifact_store
from keelbolt.state.artifacts.store import ArtifactReader, ArtifactStore

__all__ = ["ArtifactReader", "ArtifactStore", "ScopedArtifacts", "SupportsArtifactStore", "discover_artifact_store"]
