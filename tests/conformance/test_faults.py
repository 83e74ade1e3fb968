"""The suite is worth something: it catches every engine that was broken on purpose, by the law that is meant to."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.conformance import expect
from keelbolt.conformance import suite as laws
from keelbolt.conformance.laws import hints
from keelbolt.conformance.storage import KernelSubject, all_laws, validate
from tests.conformance.broken import FAULTS, Fault, full, locks
from tests.conformance.broken.alone import ALONE
from tests.conformance.broken.kept import Kept, kept


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken engine keeps the laws waiting; here they need not be patient."""
    monkeypatch.setattr(expect, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(hints, "WAKE_SECONDS", 0.2)
    monkeypatch.setattr(laws, "LAW_SECONDS", 3.0)


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS])
async def test_fault_is_caught(fault: Fault) -> None:
    report = await validate(fault.subject, only=[fault.caught_by])
    assert [finding.law.name for finding in report.failed] == [fault.caught_by], str(report)
    accidents = ("AttributeError", "KeyError", "TypeError", "NameError", "AssertionError", "no end")
    assert not report.failed[0].message.startswith(accidents), f"not the fault was caught, but: {report}"


def test_faults_are_many_and_different() -> None:
    assert len(FAULTS) >= 20
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


async def test_every_shared_law_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each process has a file of its own, no law of several processes holds."""
    monkeypatch.setattr(laws, "LAW_SECONDS", 8.0)
    names = [law.name for law in all_laws() if law.needs == "shared"]
    reports = await asyncio.gather(*(validate(ALONE, only=[name]) for name in names))
    assert [report.failed[0].law.name for report in reports if report.failed] == names


@pytest.mark.parametrize(("subject", "caught_by"), locks.FAULTS, ids=lambda each: getattr(each, "name", ""))
async def test_a_fault_of_locks_is_caught(
    subject: KernelSubject, caught_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that misses the death of a process, or takes the living for dead, is caught."""
    monkeypatch.setattr(laws, "LAW_SECONDS", 30.0)
    report = await validate(subject, only=[caught_by])
    assert [finding.law.name for finding in report.failed] == [caught_by], str(report)


@pytest.mark.parametrize(("subject", "caught_by"), full.FAULTS, ids=lambda each: getattr(each, "name", ""))
async def test_a_fault_of_a_full_storage_is_caught(subject: KernelSubject, caught_by: str) -> None:
    """An engine that refuses too much or too little while it is full is caught; one with a limit alone is not."""
    report = await validate(subject, only=[caught_by])
    assert [finding.law.name for finding in report.failed] == [caught_by], str(report)
    report = await validate(full.small(full.Small), only=[caught_by])
    assert report.ok, str(report)


async def test_the_engine_that_keeps_is_whole_without_a_fault() -> None:
    """Nothing is caught that would be caught anyway."""
    report = await validate(kept(Kept), only=["persistence"])
    assert report.ok, str(report)
