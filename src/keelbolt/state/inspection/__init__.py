"""What a store keeps, for people who look at it: lists with cursors, one thing with what belongs to it, in brief.

It reads a kernel that is open, and writes nothing. Values are shown as JSON shows them best, and cut where they are
long; what has to come back as it was is exported (`keelbolt.data`).
"""

from __future__ import annotations

from keelbolt.state.inspection.artifacts import ArtifactInspection
from keelbolt.state.inspection.lists import Lists, tenants
from keelbolt.state.inspection.sessions import SessionInspection
from keelbolt.state.inspection.traces import TraceInspection

__all__ = ["ArtifactInspection", "Lists", "SessionInspection", "TraceInspection", "tenants"]
