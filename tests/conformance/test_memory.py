"""The memory engine obeys every law."""

from __future__ import annotations

from keelbolt.conformance.kernel import ByUrl, KernelSubject
from keelbolt.conformance.pytest import kernel_laws

test_law = kernel_laws(KernelSubject("memory", ByUrl("memory:")))
