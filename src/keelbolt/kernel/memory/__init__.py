"""The memory engine: the reference implementation of the contract. Data is lost when the process ends."""

from __future__ import annotations

from keelbolt.kernel.memory.engine import MemoryKernel

__all__ = ["MemoryKernel"]
