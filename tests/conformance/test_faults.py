"""Each suite catches every seeded fault by the law that the fault names."""

from __future__ import annotations

from types import ModuleType

import pytest

from keelbolt.conformance import expect, kernel, state_store, suite, task_storage, turn_callbacks
from keelbolt.conformance.kernel.laws import tail as hints
from tests.conformance.broken import kernel as broken_kernel
from tests.conformance.broken import state_store as broken_state_store
from tests.conformance.broken import task_storage as broken_task_storage
from tests.conformance.broken import turn_callbacks as broken_turn_callbacks
from tests.conformance.broken.fault import Fault, Faults

FAULTS: dict[ModuleType, Faults] = {
    kernel: broken_kernel.FAULTS,
    task_storage: broken_task_storage.FAULTS,
    state_store: broken_state_store.FAULTS,
    turn_callbacks: broken_turn_callbacks.FAULTS,
}
# A failure with one of these prefixes is another error of the broken implementation, not the seeded fault.
ACCIDENTS = (
    "AttributeError",
    "KeyError",
    "TypeError",
    "NameError",
    "AssertionError",
    "IndexError",
    "no end",
    "a process ended",
)


@pytest.mark.parametrize(
    ("package", "fault"),
    [
        pytest.param(package, fault, id=f"{package.__name__.rpartition('.')[2]}-{fault.name}-{fault.caught_by}")
        for package, faults in FAULTS.items()
        for fault in faults
    ],
)
async def test_fault_is_caught(package: ModuleType, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expect, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(hints, "WAKE_SECONDS", 0.2)
    monkeypatch.setattr(suite, "LAW_SECONDS", 60.0 if getattr(fault.subject, "processes", False) else 5.0)
    report = await package.validate(fault.subject, only=[fault.caught_by])
    assert [finding.law.name for finding in report.failed] == [fault.caught_by], str(report)
    assert not report.failed[0].message.startswith(ACCIDENTS), f"another failure was caught: {report}"


@pytest.mark.parametrize("package", [task_storage, state_store, turn_callbacks])
def test_every_law_has_a_fault(package: ModuleType) -> None:
    assert {fault.caught_by for fault in FAULTS[package]} == {law.name for law in package.all_laws()}


def test_the_kernel_has_many_faults() -> None:
    names = [fault.name for fault in FAULTS[kernel]]
    assert len(names) >= 20
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("package", "kind", "only"),
    [
        (kernel, broken_kernel.kept.Kept, ["persistence"]),
        (task_storage, broken_task_storage.kept.Kept, []),
        (state_store, broken_state_store.Kept, []),
        (turn_callbacks, broken_turn_callbacks.Kept, []),
    ],
)
async def test_the_base_of_the_faults_obeys_every_law(package: ModuleType, kind: type, only: list[str]) -> None:
    """The base obeys every law, so only the seeded fault makes its law fail."""
    report = await package.validate(FAULTS[package].subject(kind), only=only)
    assert report.ok, str(report)
