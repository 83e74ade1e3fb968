"""The suite of the callbacks of turns is worth something: every adapter broken on purpose is caught by its law."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from keelbolt.cli.main import main
from keelbolt.conformance import suite
from keelbolt.conformance.turn_callbacks import (
    TurnCallbacksSubject,
    TurnPlace,
    all_laws,
    laws_as_markdown,
    load,
    validate,
)
from keelbolt.errors import InvalidValue
from keelbolt.turns import DurableStorage, TurnScope, durable_storage, noop_storage
from tests.conformance.broken_turns import FAULTS, Fault, Kept
from tests.integration.tasks.conftest import ENGINES, store_url

ROOT = Path(__file__).parents[2]

SEVEN = {
    "lost mutate": "LosesMutates",
    "order by timestamp": "OrdersByTime",
    "per-call spool store": "HasASpoolForEachCall",
    "hidden delete": "HidesInsteadOfDeleting",
    "scope leak": "HasOneTenant",
    "non-atomic flush": "FlushesOneByOne",
    "truncated stream": "TakesOnePieceOfAStream",
}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "LAW_SECONDS", 30.0)


@pytest.mark.parametrize("fault", [pytest.param(fault, id=f"{fault.name}-{fault.caught_by}") for fault in FAULTS])
async def test_check_48_a_fault_is_caught(fault: Fault) -> None:
    report = await validate(fault.subject, only=[fault.caught_by])
    assert [finding.law.name for finding in report.failed] == [fault.caught_by], str(report)
    accidents = ("AttributeError", "KeyError", "TypeError", "NameError", "AssertionError", "IndexError")
    assert not report.failed[0].message.startswith(accidents), f"not the fault was caught, but: {report}"


def test_every_law_has_a_fault() -> None:
    assert {fault.caught_by for fault in FAULTS} == {law.name for law in all_laws()}


def test_check_48_the_seven_faults_are_among_them() -> None:
    assert set(SEVEN.values()) <= {fault.name for fault in FAULTS}


async def test_check_48_an_adapter_in_memory_passes() -> None:
    report = await validate(Fault("Kept", "", Kept).subject)
    assert report.ok, str(report)
    assert not report.skipped


@pytest.mark.parametrize("engine", ENGINES)
async def test_check_48_the_durable_adapter_passes(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On every engine; one store for all laws, and tenants of their own for each."""
    url = store_url(engine, request, tmp_path_factory.mktemp("store"))

    def make(place: TurnPlace) -> DurableStorage:
        return durable_storage(
            url, scope=lambda ctx: TurnScope(f"{ctx.stash.get('tenant')} {place.name}", ctx.stash.get("thread"))
        )

    lasting = engine != "memory"
    report = await validate(TurnCallbacksSubject(engine, make, persistent=lasting))
    assert report.ok, str(report)
    assert bool(report.skipped) is not lasting


async def test_noop_storage_keeps_nothing_and_says_so() -> None:
    report = await validate(noop_storage)
    assert "what_is_stored_is_fetched" in {finding.law.name for finding in report.failed}
    assert "a_runner_takes_them" in {finding.law.name for finding in report.passed}
    assert {finding.law.needs for finding in report.skipped} == {"persistent", "unit_of_work", "group", "gates"}


def test_as_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code says whether all is well."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    run = CliRunner().invoke
    here = "tests.conformance.test_turn_faults"
    good = run(main, ["conformance", "turn-callbacks", f"{here}:in_memory", "--only", "shape"])
    assert good.exit_code == 0, good.output
    assert run(main, ["conformance", "turn-callbacks", "keelbolt.turns:noop_storage", "--json"]).exit_code == 1


def in_memory() -> Kept:
    return Kept(f"command {id(object())}")


async def test_what_is_no_adapter_is_refused() -> None:
    for wrong in ("no.such.module:x", "keelbolt.turns:__doc__"):
        with pytest.raises(InvalidValue):
            load(wrong)
    for made in (lambda: 7, lambda: 1 / 0):
        with pytest.raises(InvalidValue):
            await validate(made)


def test_the_documentation_lists_the_laws() -> None:
    """When this fails: `python -m keelbolt.conformance.turn_callbacks` prints the list as it should be."""
    documented = (ROOT / "docs/reference/turn-callbacks-laws.md").read_text().split("<!-- laws -->\n")[1]
    assert documented.split("\n") == [*laws_as_markdown().rstrip().split("\n"), ""]


def test_every_law_says_one_sentence() -> None:
    for law in all_laws():
        assert law.says.endswith("."), law.name
        assert len(law.says) <= 120, (law.name, len(law.says))
