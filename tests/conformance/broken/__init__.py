"""Engines that are broken on purpose, each in one way: the memory engine with one seeded fault.

A fault names the law that must catch it; a suite that lets one of them pass is no suite.
"""

from __future__ import annotations

from tests.conformance.broken import blobs, commits, finding, kept, life, logs, queues, records, work
from tests.conformance.broken.fault import FAULTS, Broken, Fault

__all__ = [
    "FAULTS",
    "Broken",
    "Fault",
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
