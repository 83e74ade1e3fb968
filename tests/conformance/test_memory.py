"""The memory engine obeys every law."""

from __future__ import annotations

from keelbolt.conformance.pytest import storage_laws
from keelbolt.conformance.storage import ByUrl, CheckedEngine

test_law = storage_laws(CheckedEngine("memory", ByUrl("memory:")))
