"""The suite of StateStores: its subjects and its checklist."""

from __future__ import annotations

import pytest

from keelbolt.conformance.state_store import all_laws, checklist, load, validate
from keelbolt.conformance.state_store.checklist import ITEMS
from keelbolt.errors import InvalidValue
from tests.conformance.broken.state_store import FAULTS, Kept


async def test_the_checklist_of_a_store_that_obeys_every_law() -> None:
    report = await validate(FAULTS.subject(Kept))
    assert {finding.law.needs for finding in report.skipped} == {"processes"}  # it stores everything in memory
    assert "not implemented" not in checklist(report)


class ThreeMethods:
    """A store with the required methods only."""

    def __init__(self) -> None:
        self.kept = Kept("three methods")
        self.kept.data.__init__()  # type: ignore[misc]
        self.save_event, self.load_history = self.kept.save_event, self.kept.load_history
        self.save_remote_binding = self.kept.save_remote_binding


async def coroutine() -> ThreeMethods:
    """A coroutine function, which penguiflow-admin accepts as a factory too."""
    return ThreeMethods()


@pytest.mark.parametrize("factory", ["ThreeMethods", "coroutine"])
async def test_only_laws_of_methods_that_the_store_has_apply(factory: str) -> None:
    report = await validate(load(f"tests.conformance.test_state_store_subjects:{factory}"))
    assert report.ok, str(report)
    assert {finding.law.group for finding in report.passed} == {"events"}
    assert "does not have all of: save_task, list_tasks" in str(report)
    filled = checklist(report)
    assert "- [x] save_event is idempotent" in filled
    assert "- [ ] save_steering implemented (not implemented)" in filled
    assert "- [ ] Connection pooling configured (check manually)" in filled


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
async def test_an_unusable_factory_is_refused(wrong: str, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        await validate(load(wrong))


async def test_a_factory_of_stores_that_are_not_empty_is_refused() -> None:
    """A factory that opens the same database at each call would fail laws that its store obeys."""
    with pytest.raises(InvalidValue, match=r"place\.name"):
        await validate(lambda: Kept("always the same place"))


def test_the_checklist_names_laws() -> None:
    named = {law for items in ITEMS.values() for laws in items.values() for law in laws}
    assert named <= {law.name for law in all_laws()}
