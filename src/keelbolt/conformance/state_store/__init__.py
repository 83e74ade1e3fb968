"""The conformance suite of StateStores: run every law of the specification on a store of your own.

    from keelbolt.conformance.state_store import validate

    report = await validate(MyStore)  # a class or function that answers an empty store at each call
    print(report)

Every store has the three methods; the laws of a capability apply to stores that have its methods. The same as a command
is `keelbolt conformance state-store module:factory`, and as pytest, one test per law,
`keelbolt.conformance.pytest.state_store_laws`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from keelbolt.conformance.expect import LawBroken
from keelbolt.conformance.report import ConformanceReport, Finding
from keelbolt.conformance.state_store import laws as _laws  # noqa: F401  (registers the laws)
from keelbolt.conformance.state_store.checklist import checklist
from keelbolt.conformance.state_store.law import (
    CAPABILITIES,
    STATE,
    StateLaw,
    StatePlace,
    StateStoreSubject,
    capabilities_of,
    load,
    state_subject_of,
)

__all__ = [
    "CAPABILITIES",
    "ConformanceReport",
    "Finding",
    "LawBroken",
    "StateLaw",
    "StatePlace",
    "StateStoreSubject",
    "all_laws",
    "capabilities_of",
    "checklist",
    "laws_as_markdown",
    "load",
    "state_subject_of",
    "validate",
]


def all_laws() -> tuple[StateLaw, ...]:
    """Every law, in the order of the groups."""
    return tuple(STATE.laws)


def laws_as_markdown() -> str:
    """The list of all laws, as the documentation has it; `python -m keelbolt.conformance.state_store` prints it."""
    return STATE.as_markdown(heading="###")


async def validate(
    subject: StateStoreSubject | Callable[[], Any],
    *,
    only: Iterable[str] = (),
    progress: Callable[[Finding], None] | None = None,
) -> ConformanceReport:
    """Check every law (or ``only`` these laws or groups) on the subject, one after another."""
    return await STATE.validate(await state_subject_of(subject).probed(), only=only, progress=progress)
