"""``python -m tests.chaos``: see ``--help``."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.chaos.bugs import BUGS
from tests.chaos.campaign import Result, run_campaign
from tests.chaos.hunt import HEAD, Found, hunt
from tests.chaos.report import publish, write_report

ENGINES = ("sqlite", "postgres", "redis")
FOLDER = Path("chaos-reports")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Run every face on one store while processes die, and check every promise afterwards."
    )
    parser.add_argument("--engine", default="all", help="sqlite, postgres, redis, or all (default)")
    parser.add_argument("--minutes", type=float, default=2.0, help="minutes of faults for each engine (default 2)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the faults (default 1)")
    parser.add_argument("--bug", default="", choices=["", *BUGS], help="plant this bug, to test that it is found")
    parser.add_argument("--kills", type=int, default=0, help="end early, after this many kill -9")
    parser.add_argument(
        "--hunt", action="store_true", help="plant each bug in turn, and print the time until it is found"
    )
    parser.add_argument(
        "--soak", action="store_true", help="no faults, a low rate, and sweeps: check that nothing grows"
    )
    parser.add_argument(
        "--publish", nargs="+", metavar="REPORT", help="write docs/reference/faults.md from these reports"
    )
    parser.add_argument("--output", type=Path, default=FOLDER, help="directory of reports, histories and stores")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers, processes and mounts are removed
    if options.publish:
        publish([json.loads(Path(report).read_text()) for report in options.publish])
        return
    engines = ENGINES if options.engine == "all" else options.engine.split(",")
    if options.hunt:
        survivors = [bug for bug in BUGS if not _hunt(bug, options.output)]
        sys.exit(1 if survivors else 0)
    failed = [engine for engine in engines if not _run(engine, options)]
    sys.exit(1 if failed else 0)


def _run(engine: str, options: argparse.Namespace) -> bool:
    """Run one campaign and write its report; return False if a promise was broken."""
    name = f"{engine}-{options.seed}-{time.strftime('%H%M%S')}"
    folder = (options.output / name).resolve()
    campaign = run_campaign(
        engine,
        seconds=options.minutes * 60,
        seed=options.seed,
        folder=folder,
        bug=options.bug,
        kills=options.kills,
        soak=options.soak,
    )
    result = asyncio.run(campaign)
    write_report(result, folder)
    print(summary(result), f"report: {options.output / name / 'report.md'}", sep="\n", flush=True)
    if not result.violated:
        shutil.rmtree(folder / "histories")
        for file in folder.glob("chaos.db*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    return not result.violated


def _hunt(bug: str, folder: Path) -> bool:
    found: Found = asyncio.run(hunt(bug, (folder / "hunt").resolve()))
    if bug == next(iter(BUGS)):
        print(HEAD)
    print(found.row(), flush=True)
    return found.seconds is not None


def summary(result: Result) -> str:
    """Return one line, and one for each violation."""
    kept = "no violation" if not result.violated else f"{sum(map(len, result.violated.values()))} violations"
    lines = [
        f"{result.engine}: {sum(result.faults.values())} faults, {sum(result.operations.values())} answers, {kept}"
    ]
    for promise, found in result.violated.items():
        lines.append(f"  {promise.replace('_', ' ')}: {found[0][0]}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
