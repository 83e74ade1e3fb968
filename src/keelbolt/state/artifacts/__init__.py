"""Artifacts: bytes and long texts beside the conversation, of which a model is shown references only."""

from __future__ import annotations

from keelbolt.state.artifacts.discovery import discover_artifact_store
from keelbolt.state.artifacts.protocol import SupportsArtifactStore
from keelbolt.state.artifacts.scoped import ScopedArtifacts
from keelbolt.state.artifacts.store import ArtifactReader, ArtifactStore

__all__ = ["ArtifactReader", "ArtifactStore", "ScopedArtifacts", "SupportsArtifactStore", "discover_artifact_store"]
