"""The kernel's suite catches faults that need several processes or a full storage."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.conformance import suite
from keelbolt.conformance.kernel import KernelSubject, all_laws, validate
from tests.conformance.broken.kernel import full, locks
from tests.conformance.broken.kernel.alone import ALONE


async def test_every_shared_law_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """No law of several processes holds on an engine that has one file per process."""
    monkeypatch.setattr(suite, "LAW_SECONDS", 8.0)
    names = [law.name for law in all_laws() if law.needs == "shared"]
    reports = await asyncio.gather(*(validate(ALONE, only=[name]) for name in names))
    assert [report.failed[0].law.name for report in reports if report.failed] == names


@pytest.mark.parametrize(("subject", "caught_by"), locks.FAULTS, ids=lambda each: getattr(each, "name", ""))
async def test_a_fault_of_locks_is_caught(
    subject: KernelSubject, caught_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite catches an engine that does not detect dead processes, and one that treats live ones as dead."""
    monkeypatch.setattr(suite, "LAW_SECONDS", 30.0)
    report = await validate(subject, only=[caught_by])
    assert [finding.law.name for finding in report.failed] == [caught_by], str(report)


@pytest.mark.parametrize(("subject", "caught_by"), full.FAULTS, ids=lambda each: getattr(each, "name", ""))
async def test_a_fault_of_a_full_storage_is_caught(subject: KernelSubject, caught_by: str) -> None:
    """The suite catches an engine that refuses too much or too little while it is full."""
    report = await validate(subject, only=[caught_by])
    assert [finding.law.name for finding in report.failed] == [caught_by], str(report)
    report = await validate(full.small(full.Small), only=[caught_by])
    assert report.ok, str(report)
