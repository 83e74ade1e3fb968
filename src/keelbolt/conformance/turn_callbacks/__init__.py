"""The conformance suite of turn callbacks: run every law of the 27 callbacks on an adapter of your own.

    from keelbolt.conformance.turn_callbacks import validate

    report = await validate(my_storage)  # a function that returns an empty adapter at each call
    print(report)

An adapter is a mapping of the callbacks, or an object with ``callbacks()``; the laws of a unit of work and of groups
apply to adapters that have them. The command is `keelbolt conformance turn-callbacks module:factory`;
`keelbolt.conformance.pytest.turn_callbacks_laws` makes one test per law.
"""

from __future__ import annotations

from keelbolt.conformance.expect import LawBroken
from keelbolt.conformance.suite import ConformanceReport, Finding
from keelbolt.conformance.turn_callbacks.subject import (
    SUITE,
    TurnCallbacksCase,
    TurnCallbacksPlace,
    TurnCallbacksSubject,
    stash_of,
)

__all__ = [
    "SUITE",
    "ConformanceReport",
    "Finding",
    "LawBroken",
    "TurnCallbacksCase",
    "TurnCallbacksPlace",
    "TurnCallbacksSubject",
    "all_laws",
    "laws_as_markdown",
    "load",
    "stash_of",
    "validate",
]

all_laws, laws_as_markdown, load, validate = SUITE.all_laws, SUITE.laws_as_markdown, SUITE.load, SUITE.validate
