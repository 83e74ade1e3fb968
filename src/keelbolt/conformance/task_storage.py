"""The conformance suite of task storages: run every law of the contract on a storage of your own.

    from keelbolt.conformance.task_storage import validate

    report = await validate(MyStorage)  # a class or function that answers an empty storage at each call
    print(report)

Laws of optional methods apply to storages that override them. The same as a command is
`keelbolt conformance task-storage module:factory`, and as pytest, one test per law,
`keelbolt.conformance.pytest.task_storage_laws`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from keelbolt.conformance import task_laws as _laws  # noqa: F401  (registers the laws)
from keelbolt.conformance.expect import LawBroken
from keelbolt.conformance.report import ConformanceReport, Finding
from keelbolt.conformance.subject import named
from keelbolt.conformance.task_law import (
    TASKS,
    AnyStorage,
    StoragePlace,
    TaskLaw,
    TaskStorageSubject,
    task_subject_of,
)
from keelbolt.errors import InvalidValue

__all__ = [
    "ConformanceReport",
    "Finding",
    "LawBroken",
    "StoragePlace",
    "TaskLaw",
    "TaskStorageSubject",
    "all_laws",
    "laws_as_markdown",
    "load",
    "task_subject_of",
    "validate",
]


def all_laws() -> tuple[TaskLaw, ...]:
    """Every law, in the order of the groups."""
    return tuple(TASKS.laws)


def laws_as_markdown() -> str:
    """The list of all laws, as the documentation has it; `python -m keelbolt.conformance.task_storage` prints it."""
    return TASKS.as_markdown(heading="####")


def load(reference: str) -> TaskStorageSubject:
    """The subject that ``module:attribute`` names."""
    given = named(reference)
    if not isinstance(given, TaskStorageSubject) and not callable(given):
        raise InvalidValue(f"{reference!r} is a {type(given).__name__}; it must be a TaskStorageSubject or a factory")
    return task_subject_of(given, name=reference)


async def validate(
    subject: TaskStorageSubject | Callable[[], TaskStorageSubject | AnyStorage],
    *,
    only: Iterable[str] = (),
    progress: Callable[[Finding], None] | None = None,
) -> ConformanceReport:
    """Check every law (or ``only`` these laws or groups) on the subject, one after another."""
    return await TASKS.validate(task_subject_of(subject), only=only, progress=progress)


if __name__ == "__main__":
    print(laws_as_markdown(), end="")  # noqa: T201
