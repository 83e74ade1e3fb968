"""StateStores that are broken on purpose, each in one way. A fault names the law that must catch it."""

from __future__ import annotations

from tests.conformance.broken_state import base, processes, sessions
from tests.conformance.broken_state.fault import FAULTS, Fault
from tests.conformance.broken_state.kept import Kept

__all__ = ["FAULTS", "Fault", "Kept", "base", "processes", "sessions"]
