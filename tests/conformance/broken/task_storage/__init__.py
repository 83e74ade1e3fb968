"""Task storages with one seeded fault each."""

from __future__ import annotations

from tests.conformance.broken.task_storage import kept, three, whole
from tests.conformance.broken.task_storage.fault import FAULTS

__all__ = ["FAULTS", "kept", "three", "whole"]
