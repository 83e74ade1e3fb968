"""What turns keep, for people who look at it: tenants, threads, and what was said, thought, called and remembered.

It reads a kernel that is open, and writes nothing but what an older form of the storage lacks. Values are shown as they
are stored, with descriptors in the place of bytes, and cut where they are long.
"""

from __future__ import annotations

from keelbolt.turns.inspection.reading import TurnInspection, open_inspection, tenants
from keelbolt.turns.inspection.records import File

__all__ = ["File", "TurnInspection", "open_inspection", "tenants"]
