"""The suite of turn callbacks, on the adapters of Keelbolt."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from keelbolt.cli.main import main
from keelbolt.conformance.turn_callbacks import (
    TurnCallbacksPlace,
    TurnCallbacksSubject,
    load,
    validate,
)
from keelbolt.errors import InvalidValue
from keelbolt.turns import DurableStorage, TurnScope, durable_storage, noop_storage
from tests.conformance.broken.turn_callbacks import FAULTS, Kept
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


def test_check_48_the_seven_faults_are_among_them() -> None:
    assert set(SEVEN.values()) <= {fault.name for fault in FAULTS}


async def test_check_48_an_adapter_in_memory_passes() -> None:
    report = await validate(FAULTS.subject(Kept))
    assert report.ok, str(report)
    assert not report.skipped


@pytest.mark.parametrize("engine", ENGINES)
async def test_check_48_the_durable_adapter_passes(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The adapter passes on every engine. All laws use one store; each has its own tenants."""
    url = store_url(engine, request, tmp_path_factory.mktemp("store"))

    def make(place: TurnCallbacksPlace) -> DurableStorage:
        return durable_storage(
            url, scope=lambda ctx: TurnScope(f"{ctx.stash.get('tenant')} {place.name}", ctx.stash.get("thread"))
        )

    lasting = engine != "memory"
    report = await validate(TurnCallbacksSubject(engine, make, persistent=lasting))
    assert report.ok, str(report)
    assert bool(report.skipped) is not lasting


async def test_noop_storage_fails_the_laws_that_need_storage() -> None:
    report = await validate(noop_storage)
    assert "stored_values_are_fetched" in {finding.law.name for finding in report.failed}
    assert "all_callbacks_exist" in {finding.law.name for finding in report.passed}
    assert {finding.law.needs for finding in report.skipped} == {"persistent", "unit_of_work", "group", "gates"}


def test_as_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 0 if every law holds, otherwise 1."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    run = CliRunner().invoke
    here = "tests.conformance.test_turn_callbacks"
    good = run(main, ["conformance", "turn-callbacks", f"{here}:in_memory", "--only", "callbacks"])
    assert good.exit_code == 0, good.output
    assert run(main, ["conformance", "turn-callbacks", "keelbolt.turns:noop_storage", "--json"]).exit_code == 1


def in_memory() -> Kept:
    return Kept(f"command {id(object())}")


async def test_an_unusable_factory_is_refused() -> None:
    for wrong in ("no.such.module:x", "keelbolt.turns:__doc__"):
        with pytest.raises(InvalidValue):
            load(wrong)
    for made in (lambda: 7, lambda: 1 / 0):
        with pytest.raises(InvalidValue):
            await validate(made)
