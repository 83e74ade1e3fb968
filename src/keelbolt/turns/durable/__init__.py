"""The durable adapter: `durable_storage(url)` provides the 27 callbacks over any engine of the kernel."""

from __future__ import annotations

from keelbolt.turns.durable.adapter import DurableStorage, durable_storage
from keelbolt.turns.durable.blobs import TurnBlobs, TurnBytes
from keelbolt.turns.durable.families import TurnRetention
from keelbolt.turns.durable.gate_records import StoredGate
from keelbolt.turns.durable.gates import DurableGates
from keelbolt.turns.durable.leased import LeasedTurns, LeftTurn
from keelbolt.turns.durable.readers import StoredMediaReader, StoredSpoolReader
from keelbolt.turns.durable.retention import SweptTurns
from keelbolt.turns.durable.scope import TurnScope, scope_in_stash
from keelbolt.turns.durable.store import DurableProgress, WritePolicy

__all__ = [
    "DurableGates",
    "DurableProgress",
    "DurableStorage",
    "LeasedTurns",
    "LeftTurn",
    "StoredGate",
    "StoredMediaReader",
    "StoredSpoolReader",
    "SweptTurns",
    "TurnBlobs",
    "TurnBytes",
    "TurnRetention",
    "TurnScope",
    "WritePolicy",
    "durable_storage",
    "scope_in_stash",
]
