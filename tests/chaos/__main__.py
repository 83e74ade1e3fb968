"""``python -m tests.chaos``: see ``--help``."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.chaos.bugs import BUGS, ENGINES, ENGINES_OF
from tests.chaos.campaign import Result, run_campaign
from tests.chaos.hunt import HEAD, Found, hunt
from tests.chaos.report import publish, write_report

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
        "--hunt",
        action="store_true",
        help="plant each bug in turn (or --bug), print the time until it is found, and add it to hunt.jsonl",
    )
    parser.add_argument(
        "--soak", action="store_true", help="no faults, a low rate, and sweeps: check that nothing grows"
    )
    parser.add_argument(
        "--publish",
        nargs="+",
        metavar="REPORT",
        help="write docs/reference/faults.md from these reports and hunt.jsonl",
    )
    parser.add_argument("--output", type=Path, default=FOLDER, help="directory of reports, histories and stores")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers, processes and mounts are removed
    if options.publish:
        texts = {file: Path(file).read_text() for file in options.publish}
        reports = [json.loads(text) for file, text in texts.items() if not file.endswith(".jsonl")]
        hunts = [line for file, text in texts.items() if file.endswith(".jsonl") for line in text.splitlines()]
        publish(reports, [Found(**json.loads(line)) for line in hunts])
        return
    engines = ENGINES if options.engine == "all" else options.engine.split(",")
    if options.hunt:
        sys.exit(0 if _hunt([options.bug] if options.bug else list(BUGS), engines, options.output) else 1)
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


def _hunt(bugs: Sequence[str], engines: Sequence[str], folder: Path) -> bool:
    """Hunt these bugs one after the other; return False if one was not found."""
    print(HEAD)
    all_found = True
    for bug, engine in [(bug, engine) for engine in engines for bug in bugs if engine in ENGINES_OF[bug]]:
        found = asyncio.run(hunt(bug, (folder / "hunt").resolve(), engine))
        print(found.row(), flush=True)
        with (folder / "hunt.jsonl").open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        all_found = all_found and found.chaos_seconds is not None
    return all_found


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
