"""Two minutes of chaos on each engine, with a fixed seed; and the proof that it can fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.campaign import run_campaign
from tests.chaos.report import as_markdown, write_report

SECONDS = float(os.environ.get("CHAOS_SECONDS", "120"))
SEEDS = {"sqlite": 11, "postgres": 12, "redis": 13}
FOUND = {  # a quick subset of the bugs, and the promise that each of them breaks
    "repeats_are_forgotten": "repeats_lead_to_one_task",
    "webhooks_skip_an_event": "webhooks_are_complete_and_in_order",
    "memory_is_overwritten": "memory_is_linearizable",
    "steps_are_not_recorded": "recorded_steps_are_not_repeated",
}

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("engine", SEEDS)
async def test_every_promise_is_kept(engine: str, tmp_path: Path) -> None:
    """No promise is broken while processes and servers die."""
    result = await run_campaign(engine, seconds=SECONDS, seed=SEEDS[engine], folder=tmp_path / engine)
    write_report(result, tmp_path)
    assert sum(result.faults.values()) >= SECONDS / 8
    assert all(result.operations[what] for what in ("send", "stream", "event", "remember")), result.operations
    assert not result.violated, as_markdown(result)


@pytest.mark.parametrize("bug", FOUND)
async def test_a_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    """A bug in the product breaks the promise that it must break."""
    for seed in range(1, 5):  # a busy machine has few faults in this time
        result = await run_campaign("sqlite", seconds=15, seed=seed, folder=tmp_path / f"{bug}-{seed}", bug=bug)
        if FOUND[bug] in result.violated:
            return
    pytest.fail(f"{bug} was not found by four campaigns")
