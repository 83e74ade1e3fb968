"""Inspection of a store: paged lists, and single items with a summary of the data that belongs to them.

It reads an open kernel and writes nothing. Values are shown as readable JSON and truncated if they are long. To get
values that can be restored, export them (`keelbolt.data`).
"""

from __future__ import annotations

from keelbolt.state.inspection.artifacts import ArtifactInspection
from keelbolt.state.inspection.lists import Lists, tenants
from keelbolt.state.inspection.sessions import SessionInspection
from keelbolt.state.inspection.traces import TraceInspection

__all__ = ["ArtifactInspection", "Lists", "SessionInspection", "TraceInspection", "tenants"]
