"""The conformance suite of task storages: run every law of the contract on a storage of your own.

    from holdfast.conformance.task_storage import validate

    report = await validate(MyStorage)  # a class or function that answers an empty storage at each call
    print(report)

Laws of optional methods apply to storages that override them. The same as a command is
`holdfast conformance task-storage module:factory`, and as pytest, one test per law,
`holdfast.conformance.pytest.task_storage_laws`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from holdfast.conformance import task_laws as _laws  # noqa: F401  (registers the laws)
from holdfast.conformance.expect import LawBroken, show
from holdfast.conformance.report import Finding, Report
from holdfast.conformance.subject import named
from holdfast.conformance.task_law import (
    TASK_LAWS,
    AnyStorage,
    StoragePlace,
    TaskLaw,
    TaskStorageSubject,
    task_subject_of,
)
from holdfast.errors import InvalidValue

__all__ = [
    "Finding",
    "LawBroken",
    "Report",
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
    return tuple(TASK_LAWS)


def laws_as_markdown() -> str:
    """The list of all laws, as the documentation has it; `python -m holdfast.conformance.task_storage` prints it."""
    lines = []
    for group in dict.fromkeys(law.group for law in TASK_LAWS):
        laws = [law for law in TASK_LAWS if law.group == group]
        lines += [f"#### {group}", ""]
        for law in laws:
            needs = "" if law.needs == "base" else f" (needs `{law.needs}`)"
            lines.append(f"- `{law.name}`: {law.says}{needs}")
        lines.append("")
    return "\n".join(lines)


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
) -> Report:
    """Check every law (or ``only`` these laws or groups) on the subject, one after another."""
    subject = task_subject_of(subject)
    findings = []
    for law in _chosen(only):
        finding = await _judge(law, subject)
        findings.append(finding)
        if progress is not None:
            progress(finding)
    return Report(subject.name, tuple(findings), "Laws of task storages")


def _chosen(only: Iterable[str]) -> Iterator[TaskLaw]:
    names = set(only)
    known = {law.name for law in TASK_LAWS} | {law.group for law in TASK_LAWS}
    if unknown := names - known:
        raise InvalidValue(f"no such law or group: {', '.join(sorted(unknown))}")
    return (law for law in TASK_LAWS if not names or {law.name, law.group} & names)


async def _judge(law: TaskLaw, subject: TaskStorageSubject) -> Finding:
    if not subject.can(law.needs):
        why = "is not declared persistent" if law.needs == "persistent" else f"has no {law.needs} of its own"
        return Finding(law, "skipped", f"{subject.name} {why}")
    started = time.monotonic()
    try:
        await law.check(subject)
    except LawBroken as error:
        return Finding(law, "failed", str(error), time.monotonic() - started)
    except Exception as error:  # noqa: BLE001  (whatever a storage raises is its finding)
        return Finding(law, "failed", f"{type(error).__name__}: {show(str(error))}", time.monotonic() - started)
    return Finding(law, "passed", "", time.monotonic() - started)


if __name__ == "__main__":
    print(laws_as_markdown(), end="")  # noqa: T201
