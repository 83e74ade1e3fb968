"""The memory engine: the reference for what the contract means. Nothing survives the process."""

from __future__ import annotations

from keelbolt.storage.memory.engine import MemoryKernel

__all__ = ["MemoryKernel"]
