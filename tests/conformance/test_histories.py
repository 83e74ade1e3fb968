"""Random histories, compared with an independent model, pass on sound engines and find seeded faults."""

from __future__ import annotations

import pytest

from keelbolt.conformance.expect import LawBroken
from keelbolt.conformance.kernel import ByUrl, KernelSubject
from keelbolt.conformance.kernel.histories import check_histories
from tests.conformance.broken.fault import Fault
from tests.conformance.broken.kernel import FAULTS

URL = "sqlite:///{directory}/histories.db"

# Faults that random histories must find.
FOUND = (
    "ForgetsVersions",
    "ForgetsFieldIn",
    "ForgetsHeads",
    "ForgetsFences",
    "InsertOverwrites",
    "PartOfARefusedCommitStays",
    "RefusalsHideWhatWasFound",
    "CommitsInAnyOrder",
    "TheSecondWriteWins",
    "PutMergesFields",
    "PatchForgetsTheOtherFields",
    "TakeLeavesTheRecord",
    "ExpiredRecordsStayUntilSwept",
    "DedupeIsIgnored",
    "TrimKeepsItsLast",
    "DropOnlyTrims",
    "BeforeIsIncluded",
    "UntilIsIncluded",
    "CountersForgetDeletes",
    "NudgesAreLost",
    "StaleFencesComplete",
    "ReleaseCountsTheAttempt",
    "TheBuriedComeBack",
    "LanesAreNotServedInTurn",
    "TheBacklogGoesBeforeExpiredLeases",
    "ATakeoverKeepsTheFence",
    "EveryEnqueueIsAClaim",
    "UnknownBlobsCanBeAttached",
    "RecordsLeakIntoOtherPartitions",
)


def test_memory() -> None:
    assert check_histories(KernelSubject("memory", ByUrl("memory:")), steps=10_000) >= 10_000


def test_sqlite_durable() -> None:
    assert check_histories(KernelSubject("SQLite", ByUrl(URL), persistent=True), steps=1500) >= 1500


def test_sqlite_relaxed() -> None:
    assert check_histories(KernelSubject("SQLite", ByUrl(URL, "relaxed"), persistent=True), steps=1000) >= 1000


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS if fault.name in FOUND])
def test_fault_is_found(fault: Fault) -> None:
    """A fault that depends on timing may need a second run."""
    error = None
    for repeatable in (True, False, False):
        try:
            check_histories(fault.subject, steps=5000, shrink=False, repeatable=repeatable)
        except Exception as caught:
            error = caught
            break
    assert isinstance(error, LawBroken) or (isinstance(error, ExceptionGroup) and error.subgroup(LawBroken)), error


def test_found_lists_known_faults() -> None:
    assert set(FOUND) <= {fault.name for fault in FAULTS}
