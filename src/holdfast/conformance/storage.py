"""The conformance suite of the storage kernel: run every law of the contract on an engine of your own.

    from holdfast.conformance.storage import Subject, validate

    def make(place, declare):
        return MyKernel(place.directory / "data", declare=declare)

    report = await validate(Subject("my engine", make, persistent=True))
    print(report)

The same as a command is `holdfast conformance storage module:factory`, and as pytest, one test per law,
`holdfast.conformance.pytest.storage_laws`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from holdfast.conformance import laws as _laws  # noqa: F401  (registers the laws)
from holdfast.conformance.expect import LawBroken, show
from holdfast.conformance.law import LAWS, Law
from holdfast.conformance.report import Finding, Report
from holdfast.conformance.subject import ByUrl, Place, Subject, load, subject_of
from holdfast.errors import InvalidValue
from holdfast.storage.contract import Kernel

__all__ = [
    "ByUrl",
    "Finding",
    "Law",
    "LawBroken",
    "Place",
    "Report",
    "Subject",
    "all_laws",
    "laws_as_markdown",
    "load",
    "subject_of",
    "validate",
]


def all_laws() -> tuple[Law, ...]:
    """Every law, in the order of the groups."""
    return tuple(LAWS)


def laws_as_markdown() -> str:
    """The list of all laws, as the documentation has it; `python -m holdfast.conformance.storage` prints it."""
    lines = []
    for group in dict.fromkeys(law.group for law in LAWS):
        laws = [law for law in LAWS if law.group == group]
        needs = "" if laws[0].needs == "base" else f" (needs `{laws[0].needs}`)"
        lines += [f"### {group}{needs}", ""]
        lines += [f"- `{law.name}`: {law.says}" for law in laws]
        lines.append("")
    return "\n".join(lines)


async def validate(
    subject: Subject | Callable[..., Subject | Kernel],
    *,
    only: Iterable[str] = (),
    progress: Callable[[Finding], None] | None = None,
) -> Report:
    """Check every law (or ``only`` these laws or groups) on the subject, one after another."""
    subject = subject_of(subject)
    findings = []
    for law in _chosen(only):
        finding = await _judge(law, subject)
        findings.append(finding)
        if progress is not None:
            progress(finding)
    return Report(subject.name, tuple(findings))


def _chosen(only: Iterable[str]) -> Iterator[Law]:
    names = set(only)
    known = {law.name for law in LAWS} | {law.group for law in LAWS}
    if unknown := names - known:
        raise InvalidValue(f"no such law or group: {', '.join(sorted(unknown))}")
    return (law for law in LAWS if not names or {law.name, law.group} & names)


async def _judge(law: Law, subject: Subject) -> Finding:
    if not subject.can(law.needs):
        return Finding(law, "skipped", f"{subject.name} is not declared {law.needs}")
    started = time.monotonic()
    try:
        await law.check(subject)
    except LawBroken as error:
        return Finding(law, "failed", str(error), time.monotonic() - started)
    except Exception as error:  # noqa: BLE001  (whatever an engine raises is its finding)
        return Finding(law, "failed", f"{type(error).__name__}: {show(str(error))}", time.monotonic() - started)
    return Finding(law, "passed", "", time.monotonic() - started)


if __name__ == "__main__":
    print(laws_as_markdown(), end="")  # noqa: T201
