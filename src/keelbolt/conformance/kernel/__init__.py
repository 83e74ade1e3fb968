"""The conformance suite of the kernel: run every law of the contract on an engine of your own.

    from keelbolt.conformance.kernel import KernelSubject, validate

    def make(place, declare):
        return MyKernel(place.directory / "data", declare=declare)

    report = await validate(KernelSubject("my engine", make, persistent=True))
    print(report)

The command is `keelbolt conformance kernel module:factory`; `keelbolt.conformance.pytest.kernel_laws` makes one test
per law.
"""

from __future__ import annotations

from keelbolt.conformance.expect import LawBroken
from keelbolt.conformance.kernel.subject import SUITE, ByUrl, KernelPlace, KernelSubject
from keelbolt.conformance.suite import ConformanceReport, Finding

__all__ = [
    "SUITE",
    "ByUrl",
    "ConformanceReport",
    "Finding",
    "KernelPlace",
    "KernelSubject",
    "LawBroken",
    "all_laws",
    "laws_as_markdown",
    "load",
    "validate",
]

all_laws, laws_as_markdown, load, validate = SUITE.all_laws, SUITE.laws_as_markdown, SUITE.load, SUITE.validate
