"""The conformance suite of StateStores: run every law of the specification on a store of your own.

    from keelbolt.conformance.state_store import validate

    report = await validate(MyStore)  # a class, or a function that returns an empty store at each call
    print(report)

Every store has the three methods; the laws of a capability apply to stores that have its methods. The command is
`keelbolt conformance state-store module:factory`; `keelbolt.conformance.pytest.state_store_laws` makes one test per
law.
"""

from __future__ import annotations

from keelbolt.conformance.expect import LawBroken
from keelbolt.conformance.state_store.checklist import checklist
from keelbolt.conformance.state_store.subject import (
    CAPABILITIES,
    SUITE,
    StateStorePlace,
    StateStoreSubject,
    capabilities_of,
)
from keelbolt.conformance.suite import ConformanceReport, Finding

__all__ = [
    "CAPABILITIES",
    "SUITE",
    "ConformanceReport",
    "Finding",
    "LawBroken",
    "StateStorePlace",
    "StateStoreSubject",
    "all_laws",
    "capabilities_of",
    "checklist",
    "laws_as_markdown",
    "load",
    "validate",
]

all_laws, laws_as_markdown, load, validate = SUITE.all_laws, SUITE.laws_as_markdown, SUITE.load, SUITE.validate
