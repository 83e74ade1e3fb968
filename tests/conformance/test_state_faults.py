"""The suite of StateStores is worth something: every store that was broken on purpose is caught by its law."""

from __future__ import annotations

from pathlib import Path

import pytest

from keelbolt.conformance import suite
from keelbolt.conformance.state_store import all_laws, checklist, laws_as_markdown, load, validate
from keelbolt.conformance.state_store.checklist import ITEMS
from keelbolt.errors import InvalidValue
from tests.conformance.broken_state import FAULTS, Fault, Kept

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    callspec = getattr(request.node, "callspec", None)
    fault = callspec.params.get("fault") if callspec is not None else None
    starts_processes = isinstance(fault, Fault) and fault.subject.processes
    monkeypatch.setattr(suite, "LAW_SECONDS", 60.0 if starts_processes else 5.0)


@pytest.mark.parametrize("fault", [pytest.param(fault, id=f"{fault.name}-{fault.caught_by}") for fault in FAULTS])
async def test_fault_is_caught(fault: Fault) -> None:
    report = await validate(fault.subject, only=[fault.caught_by])
    assert [finding.law.name for finding in report.failed] == [fault.caught_by], str(report)
    accidents = ("AttributeError", "TypeError", "NameError", "AssertionError", "IndexError", "a process ended")
    assert not report.failed[0].message.startswith(accidents), f"not the fault was caught, but: {report}"


def test_every_law_has_a_fault() -> None:
    assert {fault.caught_by for fault in FAULTS} == {law.name for law in all_laws()}


async def test_the_store_that_keeps_is_whole_without_a_fault() -> None:
    report = await validate(Fault("Kept", "", Kept).subject)
    assert report.ok, str(report)
    assert {finding.law.needs for finding in report.skipped} == {"processes"}  # it keeps everything in memory
    assert "not there" not in checklist(report)


class ThreeMethods:
    """What every store has, and nothing else."""

    def __init__(self) -> None:
        self.kept = Kept("three methods")
        self.kept.data.__init__()  # type: ignore[misc]
        self.save_event, self.load_history = self.kept.save_event, self.kept.load_history
        self.save_remote_binding = self.kept.save_remote_binding


async def coroutine() -> ThreeMethods:
    """As penguiflow-admin takes factories too."""
    return ThreeMethods()


@pytest.mark.parametrize("factory", ["ThreeMethods", "coroutine"])
async def test_only_the_laws_of_what_a_store_has_apply(factory: str) -> None:
    report = await validate(load(f"tests.conformance.test_state_faults:{factory}"))
    assert report.ok, str(report)
    assert {finding.law.group for finding in report.passed} == {"events", "bindings"}
    assert "has not all of: save_task, list_tasks" in str(report)
    filled = checklist(report)
    assert "- [x] save_event is idempotent" in filled
    assert "- [ ] save_steering implemented (not there)" in filled
    assert "- [ ] Connection pooling configured (look yourself)" in filled


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("builtins:object", "save_event, load_history, save_remote_binding"),
        ("builtins:zip", "zip"),
        ("sys:maxsize", "must be a StateStoreSubject or a factory"),
        ("nothing", "module:attribute"),
        ("keelbolt.state:StateStore", "made no store"),
    ],
)
async def test_what_is_no_store_is_told(wrong: str, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        await validate(load(wrong))


async def test_stores_that_are_not_empty_are_told() -> None:
    """A factory that opens one database at each call would break laws that it keeps."""
    with pytest.raises(InvalidValue, match=r"place\.name"):
        await validate(lambda: Kept("always the same place"))


def test_the_checklist_names_laws() -> None:
    named = {law for items in ITEMS.values() for laws in items.values() for law in laws}
    assert named <= {law.name for law in all_laws()}


def test_the_documentation_lists_the_laws() -> None:
    """When this fails: `python -m keelbolt.conformance.state_store` prints the list as it should be."""
    documented = (ROOT / "docs/reference/state-store-laws.md").read_text().split("<!-- laws -->\n")[1]
    assert documented.split("\n") == [*laws_as_markdown().rstrip().split("\n"), ""]


def test_every_law_says_one_sentence() -> None:
    for law in all_laws():
        assert law.says.endswith("."), law.name
        assert len(law.says) <= 120, (law.name, len(law.says))
