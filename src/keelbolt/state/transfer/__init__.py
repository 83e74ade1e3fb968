"""The state of a trace, a session or a tenant as lines of JSON, and back: into another tenant, or another engine.

Each line is an object with its ``kind``. Values are as the store's codec writes them, so that they come back as they
were. Pauses are left out, since each is taken once, and so is what processes hold.
"""

from __future__ import annotations

from keelbolt.state.transfer.export import export_session, export_tenant, export_trace
from keelbolt.state.transfer.intake import Imported, import_state

__all__ = ["Imported", "export_session", "export_tenant", "export_trace", "import_state"]
