"""Plants each bug and measures the time that campaigns need to find it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.campaign import run_campaign

CAMPAIGN_SECONDS = 12.0
LIMIT_SECONDS = 300.0
SEEDS = range(1, 1 + int(LIMIT_SECONDS / CAMPAIGN_SECONDS))


@dataclass(frozen=True, slots=True)
class Found:
    """The first campaign that found a bug. ``seconds`` are those of chaos, over all campaigns; None: not found."""

    bug: str
    seed: int
    seconds: float | None
    promises: tuple[str, ...]

    def row(self) -> str:
        """A line of the table."""
        time = "not found" if self.seconds is None else f"{self.seconds:.0f} s"
        return f"| {self.bug.replace('_', ' ')} | {self.seed} | {time} | {', '.join(self.promises).replace('_', ' ')} |"


HEAD = "| bug | seed | chaos | broken promises |\n|---|---|---|---|"


async def hunt(bug: str, folder: Path, engine: str = "sqlite") -> Found:
    """Run short campaigns with the seeds 1, 2, … until a promise is broken."""
    for seed in SEEDS:
        place = folder / f"{bug}-{seed}"
        result = await run_campaign(engine, seconds=CAMPAIGN_SECONDS, seed=seed, folder=place, bug=bug)
        shutil.rmtree(place, ignore_errors=True)
        if result.violated:
            return Found(bug, seed, seed * CAMPAIGN_SECONDS, tuple(result.violated))
    return Found(bug, SEEDS[-1], None, ())
