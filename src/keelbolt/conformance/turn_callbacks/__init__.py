"""The conformance suite of turn storage: run every law of the 27 callbacks on an adapter of your own.

    from keelbolt.conformance.turn_callbacks import validate

    report = await validate(my_storage)  # a function that answers an empty adapter at each call
    print(report)

An adapter is a mapping of the callbacks, or an object with ``callbacks()``; the laws of a unit of work and of groups
apply to adapters that have them. The same as a command is `keelbolt conformance turn-callbacks module:factory`, and as
pytest, one test per law, `keelbolt.conformance.pytest.turn_callbacks_laws`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from keelbolt.conformance.expect import LawBroken
from keelbolt.conformance.report import ConformanceReport, Finding
from keelbolt.conformance.turn_callbacks import laws as _laws  # noqa: F401  (registers the laws)
from keelbolt.conformance.turn_callbacks.law import (
    TURNS,
    TurnCallbacksSubject,
    TurnCase,
    TurnLaw,
    TurnPlace,
    load,
    stash_of,
    turn_subject_of,
)

__all__ = [
    "ConformanceReport",
    "Finding",
    "LawBroken",
    "TurnCallbacksSubject",
    "TurnCase",
    "TurnLaw",
    "TurnPlace",
    "all_laws",
    "laws_as_markdown",
    "load",
    "stash_of",
    "turn_subject_of",
    "validate",
]


def all_laws() -> tuple[TurnLaw, ...]:
    """Every law, in the order of the groups."""
    return tuple(TURNS.laws)


def laws_as_markdown() -> str:
    """The list of all laws, as the documentation has it; `python -m keelbolt.conformance.turn_callbacks` prints it."""
    return TURNS.as_markdown(heading="###")


async def validate(
    subject: TurnCallbacksSubject | Callable[[], Any],
    *,
    only: Iterable[str] = (),
    progress: Callable[[Finding], None] | None = None,
) -> ConformanceReport:
    """Check every law (or ``only`` these laws or groups) on the subject, one after another."""
    return await TURNS.validate(await turn_subject_of(subject).probed(), only=only, progress=progress)
