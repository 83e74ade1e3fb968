"""Two minutes of chaos on each engine, with fixed seeds; and planted bugs that it must find."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.chaos.campaign import run_campaign
from tests.chaos.report import as_json, as_markdown, as_page, soaks_section, write_report
from tests.chaos.soak import SAMPLE_SECONDS, nothing_grows

SECONDS = float(os.environ.get("CHAOS_SECONDS", "120"))
SEEDS = {"sqlite": 11, "postgres": 12, "redis": 13}
FOUND = {  # a quick subset of the bugs, and the promise that each of them breaks
    "repeats_are_forgotten": "repeats_lead_to_one_task",
    "memory_is_overwritten": "memory_is_linearizable",
    "gates_are_left_open": "gates_hold_a_turn",
    "items_are_popped_twice": "session_items_are_kept_in_order",
}

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("engine", SEEDS)
async def test_every_promise_is_kept(engine: str, tmp_path: Path) -> None:
    """No promise is broken while processes and servers die."""
    result = await run_campaign(engine, seconds=SECONDS, seed=SEEDS[engine], folder=tmp_path)
    write_report(result, tmp_path)
    assert not result.violated, as_markdown(result)
    assert sum(result.faults.values()) >= SECONDS / 8, as_markdown(result)
    assert all(result.operations[what] for what in ("send", "event", "remember", "checkpoint", "add", "pair"))
    page = as_page([as_json(result)])
    assert "0 violations" in page
    assert str(tmp_path) not in page


async def test_planted_bugs_are_found(tmp_path: Path) -> None:
    """A planted bug breaks the promise that it must break."""

    async def is_found(bug: str) -> bool:
        for seed in range(1, 7):  # a busy machine makes little progress in this time
            result = await run_campaign("sqlite", seconds=12, seed=seed, folder=tmp_path / f"{bug}-{seed}", bug=bug)
            if FOUND[bug] in result.violated:
                return True
        return False

    found = await asyncio.gather(*map(is_found, FOUND))
    assert dict(zip(FOUND, found, strict=True)) == dict.fromkeys(FOUND, True)


def test_what_grows_in_a_soak_is_found() -> None:
    """A steady rise of memory is a violation, which names the processes whose memory rose; noise is not."""
    flat = [
        {
            "at": at * SAMPLE_SECONDS,
            "rss_bytes": 4e8 + at % 7 * 1e5,
            "rss_bytes: agent": 3e8 + at % 7 * 1e5,
            "rss_bytes: state": 1e8,
            "descriptors": 200.0 + at % 3,
            "connections": 20.0,
            "store_bytes": 9e6 + at % 5 * 1e5,
            "p99_seconds": 0.02 + at % 4 * 0.01,
        }
        for at in range(120)
    ]
    assert list(nothing_grows(flat)) == []
    leak = ("rss_bytes", "rss_bytes: state")
    leaking = [{**sample, **{name: sample[name] + at * 2e6 for name in leak}} for at, sample in enumerate(flat)]
    ((sentence, (_, first, *_)),) = nothing_grows(leaking)
    assert sentence.startswith("rss_bytes grew by ")
    assert first.startswith("rss_bytes: state by ")
    report = {"engine": "sqlite", "seconds": 3600.0, "operations": {"send": 7}, "violations": {"nothing_grows": ["x"]}}
    page = soaks_section([{**report, "samples": leaking}])
    assert "- SQLite: 60 minutes, 7 answers, 1 violations" in page
    assert "| SQLite | memory, MB | 567.3 | +142.0 | 64.7 |" in page
    assert "| SQLite | p99, ms | 35.0 | +2.1 | 267.5 |" in page
