"""Adapters of turns that are broken on purpose, each in one way. A fault names the law that must catch it."""

from __future__ import annotations

from tests.conformance.broken_turns import bytes_, records
from tests.conformance.broken_turns.fault import FAULTS, Fault
from tests.conformance.broken_turns.kept import Kept

__all__ = ["FAULTS", "Fault", "Kept", "bytes_", "records"]
