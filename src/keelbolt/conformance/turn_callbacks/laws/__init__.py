"""Every law of the callbacks, by the part of the contract it is about."""

from __future__ import annotations

from keelbolt.conformance.turn_callbacks.laws import (
    conduits,
    gates,
    instructions,
    records,
    reopened,
    scope,
    shape,
    together,
)

__all__ = ["conduits", "gates", "instructions", "records", "reopened", "scope", "shape", "together"]
