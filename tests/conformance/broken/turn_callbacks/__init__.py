"""Adapters of turn callbacks with one seeded fault each."""

from __future__ import annotations

from tests.conformance.broken.turn_callbacks import bytes_, records
from tests.conformance.broken.turn_callbacks.fault import FAULTS
from tests.conformance.broken.turn_callbacks.kept import Kept

__all__ = ["FAULTS", "Kept", "bytes_", "records"]
