"""The suite of task storages is worth something: every storage that was broken on purpose is caught by its law."""

from __future__ import annotations

from pathlib import Path

import pytest

from keelbolt.conformance import suite as laws
from keelbolt.conformance.task_storage import all_laws, laws_as_markdown, validate
from tests.conformance.broken_tasks import FAULTS, Fault
from tests.conformance.broken_tasks.kept import Kept

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "LAW_SECONDS", 5.0)


@pytest.mark.parametrize("fault", [pytest.param(fault, id=f"{fault.name}-{fault.caught_by}") for fault in FAULTS])
async def test_fault_is_caught(fault: Fault) -> None:
    report = await validate(fault.subject, only=[fault.caught_by])
    assert [finding.law.name for finding in report.failed] == [fault.caught_by], str(report)
    accidents = ("AttributeError", "KeyError", "TypeError", "NameError", "AssertionError", "IndexError")
    assert not report.failed[0].message.startswith(accidents), f"not the fault was caught, but: {report}"


def test_every_law_has_a_fault() -> None:
    assert {fault.caught_by for fault in FAULTS} == {law.name for law in all_laws()}


async def test_the_storage_that_keeps_is_whole_without_a_fault() -> None:
    report = await validate(Fault("Kept", "", Kept).subject)
    assert report.ok, str(report)


def test_the_documentation_lists_the_laws() -> None:
    """When this fails: `python -m keelbolt.conformance.task_storage` prints the list as it should be."""
    documented = (ROOT / "docs/reference/task-storage.md").read_text().split("<!-- laws -->\n")[1]
    assert documented.split("\n") == [*laws_as_markdown().rstrip().split("\n"), ""]


def test_every_law_says_one_sentence() -> None:
    for law in all_laws():
        assert law.says.endswith("."), law.name
        assert len(law.says) <= 120, (law.name, len(law.says))
