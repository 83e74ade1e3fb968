"""The memory engine obeys every law."""

from __future__ import annotations

from keelbolt.conformance.pytest import storage_laws
from keelbolt.conformance.storage import ByUrl, KernelSubject

test_law = storage_laws(KernelSubject("memory", ByUrl("memory:")))
