"""Plants each bug and measures the time that campaigns need to find it."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.campaign import run_campaign

CAMPAIGNS = {1: 12.0, 2: 24.0, 3: 48.0, 4: 96.0, 5: 120.0}  # seconds by seed: five minutes in total
QUIET_SECONDS = 90.0  # many bugs leave work that never ends


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
    """Run campaigns until one breaks a promise. Most bugs need only the first, which is short."""
    began, chaos = time.monotonic(), 0.0
    for seed, seconds in CAMPAIGNS.items():
        place = folder / f"{bug}-{engine}-{seed}"
        result = await run_campaign(
            engine, seconds=seconds, seed=seed, folder=place, bug=bug, quiet_seconds=QUIET_SECONDS
        )
        shutil.rmtree(place, ignore_errors=True)
        chaos += seconds
        if result.violated:
            return Found(bug, engine, seed, chaos, time.monotonic() - began, tuple(result.violated))
    return Found(bug, engine, seed, None, time.monotonic() - began, ())
