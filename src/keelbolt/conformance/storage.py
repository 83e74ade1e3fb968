"""The conformance suite of the storage kernel: run every law of the contract on an engine of your own.

    from keelbolt.conformance.storage import Subject, validate

    def make(place, declare):
        return MyKernel(place.directory / "data", declare=declare)

    report = await validate(Subject("my engine", make, persistent=True))
    print(report)

The same as a command is `keelbolt conformance storage module:factory`, and as pytest, one test per law,
`keelbolt.conformance.pytest.storage_laws`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from keelbolt.conformance import laws as _laws  # noqa: F401  (registers the laws)
from keelbolt.conformance.expect import LawBroken
from keelbolt.conformance.law import STORAGE, Law
from keelbolt.conformance.report import ConformanceReport, Finding
from keelbolt.conformance.subject import ByUrl, DataPlace, KernelSubject, load, subject_of
from keelbolt.kernel.contract import Kernel

__all__ = [
    "ByUrl",
    "ConformanceReport",
    "DataPlace",
    "Finding",
    "KernelSubject",
    "Law",
    "LawBroken",
    "all_laws",
    "laws_as_markdown",
    "load",
    "subject_of",
    "validate",
]


def all_laws() -> tuple[Law, ...]:
    """Every law, in the order of the groups."""
    return tuple(STORAGE.laws)


def laws_as_markdown() -> str:
    """The list of all laws, as the documentation has it; `python -m keelbolt.conformance.storage` prints it."""
    return STORAGE.as_markdown(heading="###")


async def validate(
    subject: KernelSubject | Callable[..., KernelSubject | Kernel],
    *,
    only: Iterable[str] = (),
    progress: Callable[[Finding], None] | None = None,
) -> ConformanceReport:
    """Check every law (or ``only`` these laws or groups) on the subject, one after another."""
    return await STORAGE.validate(subject_of(subject), only=only, progress=progress)


if __name__ == "__main__":
    print(laws_as_markdown(), end="")  # noqa: T201
