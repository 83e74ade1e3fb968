"""The memory engine with one seeded fault each."""

from __future__ import annotations

from tests.conformance.broken.kernel import blobs, commits, finding, kept, life, logs, queues, records, work
from tests.conformance.broken.kernel.fault import FAULTS, Broken

__all__ = [
    "FAULTS",
    "Broken",
    "blobs",
    "commits",
    "finding",
    "kept",
    "life",
    "logs",
    "queues",
    "records",
    "work",
]
