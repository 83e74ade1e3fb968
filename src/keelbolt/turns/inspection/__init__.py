"""Read access to stored turns for operators: tenants, threads, messages, thoughts, calls and memories.

It reads an open kernel, and writes nothing except format upgrades of an older storage. Values are shown as stored,
with descriptors instead of bytes, and long values are truncated.
"""

from __future__ import annotations

from keelbolt.turns.inspection.reading import RecordFile, TurnInspection, open_inspection, tenants

__all__ = ["RecordFile", "TurnInspection", "open_inspection", "tenants"]
