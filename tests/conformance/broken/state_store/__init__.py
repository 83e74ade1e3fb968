"""StateStores with one seeded fault each."""

from __future__ import annotations

from tests.conformance.broken.state_store import base, processes, sessions
from tests.conformance.broken.state_store.fault import FAULTS
from tests.conformance.broken.state_store.kept import Kept

__all__ = ["FAULTS", "Kept", "base", "processes", "sessions"]
