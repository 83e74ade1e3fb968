"""The durable adapter: `durable_storage(url)` gives the 27 callbacks over any engine of the kernel."""

from __future__ import annotations

from holdfast.turns.durable.adapter import DurableStorage, durable_storage
from holdfast.turns.durable.gate_records import StoredGate
from holdfast.turns.durable.gates import DurableGates
from holdfast.turns.durable.policies import Policy
from holdfast.turns.durable.progress import DurableProgress
from holdfast.turns.durable.readers import StoredMediaReader, StoredSpoolReader
from holdfast.turns.durable.retention import Removed
from holdfast.turns.durable.scope import Scope, scope_in_stash
from holdfast.turns.durable.shelves import TurnBlobs, TurnBytes

__all__ = [
    "DurableGates",
    "DurableProgress",
    "DurableStorage",
    "Policy",
    "Removed",
    "Scope",
    "StoredGate",
    "StoredMediaReader",
    "StoredSpoolReader",
    "TurnBlobs",
    "TurnBytes",
    "durable_storage",
    "scope_in_stash",
]
