"""Plants each bug and measures the time that campaigns need to find it."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.campaign import run_campaign

CAMPAIGN_SECONDS = 12.0
LIMIT_SECONDS = 300.0
SEEDS = range(1, 1 + int(LIMIT_SECONDS / CAMPAIGN_SECONDS))


@dataclass(frozen=True, slots=True)
class Found:
    """The first campaign that found a bug."""

    bug: str
    engine: str
    seed: int
    chaos_seconds: float | None  # of all campaigns of the hunt; None: not found
    seconds: float  # chaos, start, remaining work and check of all campaigns
    promises: tuple[str, ...]

    def row(self) -> str:
        """A line of the table."""
        chaos = "not found" if self.chaos_seconds is None else f"{self.chaos_seconds:.0f}"
        names = ", ".join(self.promises).replace("_", " ")
        return (
            f"| {self.bug.replace('_', ' ')} | {self.engine} | {self.seed} | {chaos} | {self.seconds:.0f} | {names} |"
        )


HEAD = "| bug | engine | seed | seconds of chaos | seconds in total | broken promises |\n|---|---|---|---|---|---|"


async def hunt(bug: str, folder: Path, engine: str) -> Found:
    """Run short campaigns with the seeds 1, 2, … until one breaks a promise."""
    began = time.monotonic()
    for seed in SEEDS:
        place = folder / f"{bug}-{engine}-{seed}"
        result = await run_campaign(engine, seconds=CAMPAIGN_SECONDS, seed=seed, folder=place, bug=bug)
        shutil.rmtree(place, ignore_errors=True)
        if result.violated:
            chaos, promises = seed * CAMPAIGN_SECONDS, tuple(result.violated)
            return Found(bug, engine, seed, chaos, time.monotonic() - began, promises)
    return Found(bug, engine, SEEDS[-1], None, time.monotonic() - began, ())
