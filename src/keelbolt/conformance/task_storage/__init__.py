"""The conformance suite of task storages: run every law of the contract on a storage of your own.

    from keelbolt.conformance.task_storage import validate

    report = await validate(MyStorage)  # a class, or a function that returns an empty storage at each call
    print(report)

Laws of optional methods apply to storages that override them. The command is
`keelbolt conformance task-storage module:factory`; `keelbolt.conformance.pytest.task_storage_laws` makes one test per
law.
"""

from __future__ import annotations

from keelbolt.conformance.expect import LawBroken
from keelbolt.conformance.suite import ConformanceReport, Finding
from keelbolt.conformance.task_storage.subject import SUITE, TaskStoragePlace, TaskStorageSubject

__all__ = [
    "SUITE",
    "ConformanceReport",
    "Finding",
    "LawBroken",
    "TaskStoragePlace",
    "TaskStorageSubject",
    "all_laws",
    "laws_as_markdown",
    "load",
    "validate",
]

all_laws, laws_as_markdown, load, validate = SUITE.all_laws, SUITE.laws_as_markdown, SUITE.load, SUITE.validate
