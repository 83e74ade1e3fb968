"""The report of campaigns: one page of Markdown, the same as JSON, and a plot of the throughput."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.chaos.campaign import Result
from tests.chaos.figures import TAKEOVERS, percentile
from tests.chaos.hunt import HEAD as HUNT_HEAD
from tests.chaos.hunt import Found
from tests.chaos.soak import BOUNDS, Sample, growths

SHOWN = 5  # violations of one promise
PAGE = Path(__file__).parents[2] / "docs/reference/faults.md"
TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Valkey with a replica"}
HEAD = """# The last full run of the chaos machine

`make chaos` runs all faces on one store while a nemesis draws faults from a seed: it kills, stops and terminates
processes, cuts and delays the network, restarts servers, fills disks, moves the wall clock. Every process records its
requests and their results. Afterwards a checker compares these histories with the store, one function for each promise.
`python -m tests.chaos --publish REPORT …` wrote this page from the reports of the run.

The lease of a task is one second in a campaign (15 seconds by default), its heartbeat a quarter of it. On SQLite a
process that dies is noticed by its lock, not by its lease. Times include the load of the machine; those of takeovers
include the start of a new process when no other one was alive, and faults of the store. The files of the stores are in
memory: this run kills processes, not machines.
"""
SOAKS_HEAD = """
## Soaks

`make soak` runs all faces for an hour or longer without faults, at a low rate after a busy start, with a retention of
half a minute. Then nothing may grow. The table shows the mean of each value after warming up, and the rise of its
linear fit. Memory is that of all agents and users, without that of the process that forked them. The promises that need
no removed data are checked, too.
"""
SOAKED = {
    "rss_bytes": ("memory, MB", 1e6),
    "descriptors": ("file descriptors", 1.0),
    "connections": ("connections", 1.0),
    "store_bytes": ("store, MB", 1e6),
    "p99_seconds": ("p99, ms", 0.001),
}
BUGS_HEAD = """
## Planted bugs

A run without a violation proves something only if the machine finds bugs. `python -m tests.chaos --hunt` plants one bug
at a time and runs campaigns until one of them breaks a promise: at most five campaigns, with the seeds 1 to 5, of 12,
24, 48, 96 and 120 seconds. The total includes the start of the processes, the remaining work and the check.
"""


def summary(times: list[float]) -> dict[str, float]:
    """Return count, p50, p99 and max of sorted times."""
    shares = {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "max": max(times, default=0.0)}
    return {"count": len(times), **{name: round(value, 3) for name, value in shares.items()}}


def as_json(result: Result) -> dict[str, Any]:
    """Return the figures of one campaign."""
    return {
        "engine": result.engine,
        "seed": result.seed,
        "bug": result.bug,
        "seconds": round(result.seconds, 1),
        "faults": dict(result.faults),
        "operations": result.operations,
        "quiet_seconds": result.quiet,
        "takeover_seconds": {kind: summary(times) for kind, times in result.takeovers.items()},
        "recovery_seconds": {fault: summary(times) for fault, times in sorted(result.recoveries.items())},
        "violations": {promise: [sentence for sentence, _ in found] for promise, found in result.violated.items()},
        "promises": list(result.violations),
        "machine": {"processors": os.cpu_count(), "load": round(os.getloadavg()[2], 1)},
        "answers_per_second": result.answered,
        "samples": result.samples,
    }


def as_markdown(result: Result) -> str:
    """Return the Markdown page."""
    figures = as_json(result)
    faults, answers = sum(result.faults.values()), sum(result.operations.values())
    quiet = f"{result.quiet:.1f} s" if result.quiet is not None else "never"
    lines = [
        f"# Chaos on {result.engine}, seed {result.seed}" + (f", bug {result.bug}" if result.bug else ""),
        "",
        f"{faults} faults and {answers} answered requests in {result.seconds:.0f} s.",
        "",
        "| fault | count |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in sorted(result.faults.items())),
        "",
        "| request | answered |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in result.operations.items()),
        "",
        "| seconds until the next | count | p50 | p99 | max |",
        "|---|---|---|---|---|",
        *(row(TAKEOVERS[kind], each) for kind, each in figures["takeover_seconds"].items()),
        *(row(f"acknowledged write after: {fault}", each) for fault, each in figures["recovery_seconds"].items()),
        "",
        f"Quiet after the last fault: {quiet}.",
        "",
        "![Answers per second](throughput.svg)",
        *(soak_lines(result.samples) if result.samples else []),
        "",
        "## Promises",
        "",
    ]
    for promise, found in result.violations.items():
        lines.append(f"- {promise.replace('_', ' ')}: " + ("kept" if not found else f"**{len(found)} violations**"))
        for sentence, history in found[:SHOWN]:
            lines.append(f"  - {sentence}")
            lines += [f"    `{json.dumps(line)[:400]}`" for line in history[:6]]
    return "\n".join(lines) + "\n"


def soak_lines(samples: list[Sample]) -> list[str]:
    """Return the growth of each value of a soak after warming up, the parts of memory and store included."""
    return [
        "",
        "![Memory, descriptors, connections, size and p99](samples.svg)",
        "",
        "| after warming up | mean | grown | allowed |",
        "|---|---|---|---|",
        *(
            f"| {each.name} | {each.mean:,.3f} | {each.grown:+,.3f} | {f'{each.bound:,.3f}' if each.bound else ''} |"
            for each in growths(samples)
        ),
    ]


def row(name: str, times: dict[str, float]) -> str:
    """Return a line of a table of times."""
    return f"| {name} | {times['count']} | {times['p50']:.2f} | {times['p99']:.2f} | {times['max']:.2f} |"


def as_svg(result: Result) -> str:
    """Return a plot of the answers per second."""
    width, height = 720, 160
    points = result.answered or [(0.0, 0)]
    most = max(count for _, count in points) or 1
    last = points[-1][0] or 1.0
    path = " ".join(f"{at / last * width:.1f},{height - count / most * height:.1f}" for at, count in points)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -20 {width} {height + 40}" font-family="sans-serif" '
        f'font-size="12"><polyline fill="none" stroke="#2b6cb0" stroke-width="1.5" points="{path}"/>'
        f'<text x="0" y="-6">answers per second, up to {most}</text>'
        f'<text x="{width}" y="{height + 16}" text-anchor="end">{last:.0f} s</text></svg>\n'
    )


def samples_svg(result: Result) -> str:
    """Return small plots of the measurements of a soak, one below the other."""
    width, height, gap = 720, 80, 40
    names = [name for name in result.samples[0] if name.partition(":")[0] in BOUNDS]
    first, last = result.samples[0]["at"], result.samples[-1]["at"]
    parts = []
    for number, name in enumerate(names):
        top = number * (height + gap) + gap / 2
        most = max(sample[name] for sample in result.samples) or 1.0
        points = " ".join(
            f"{(sample['at'] - first) / (last - first) * width:.1f},{top + height - sample[name] / most * height:.1f}"
            for sample in result.samples
        )
        parts.append(f'<polyline fill="none" stroke="#2b6cb0" stroke-width="1.5" points="{points}"/>')
        parts.append(f'<text x="0" y="{top - 4}">{name.replace("_", " ")}, up to {most:.4g}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {len(names) * (height + gap)}" '
        f'font-family="sans-serif" font-size="12">{"".join(parts)}</svg>\n'
    )


def write_report(result: Result, folder: Path) -> None:
    """Write report.md, report.json and throughput.svg."""
    (folder / "report.md").write_text(as_markdown(result))
    (folder / "report.json").write_text(json.dumps(as_json(result), indent=1))
    (folder / "throughput.svg").write_text(as_svg(result))
    if result.samples:
        (folder / "samples.svg").write_text(samples_svg(result))


def publish(reports: list[dict[str, Any]], hunted: list[Found]) -> None:
    """Write docs/reference/faults.md from the reports of the last campaigns and soaks, and the last hunts."""
    campaigns = [report for report in reports if not report["samples"]]
    soaks = [report for report in reports if report["samples"]]
    PAGE.write_text(as_page(campaigns) + soaks_section(soaks) + bugs_section(hunted))


def bugs_section(hunted: list[Found]) -> str:
    """Return the section of the planted bugs: the last hunt of each on each engine."""
    last = {(found.engine, found.bug): found for found in hunted}
    return f"{BUGS_HEAD}\n{HUNT_HEAD}\n" + "".join(f"{found.row()}\n" for found in last.values()) if last else ""


def soaks_section(reports: list[dict[str, Any]]) -> str:
    """Return the section of the soaks, one of each engine: what grew after warming up, and the limits."""
    if not reports:
        return ""
    runs, rows = [], []
    for report in reports:
        title, minutes, answers = TITLES[report["engine"]], report["seconds"] / 60, sum(report["operations"].values())
        broken = sum(map(len, report["violations"].values()))
        runs.append(f"- {title}: {minutes:.0f} minutes, {answers:,} answers, {broken} violations")
        for each in growths(report["samples"]):
            if each.bound is not None:
                name, unit = SOAKED[each.name]
                figures = f"{each.mean / unit:.1f} | {each.grown / unit:+.1f} | {each.bound / unit:.1f}"
                rows.append(f"| {title} | {name} | {figures} |")
    head = ["", "| engine | value | mean | grown | allowed |", "|---|---|---|---|---|"]
    return "\n".join([SOAKS_HEAD, *runs, *head, *rows, ""])


def as_page(reports: list[dict[str, Any]]) -> str:
    """Return the page of the last full run."""
    lines = [HEAD]
    for report in reports:
        faults = report["faults"]
        kills = sum(count for name, count in faults.items() if name.startswith("kill ") and "server" not in name)
        others, answers = sum(faults.values()) - kills, sum(report["operations"].values())
        broken = sum(map(len, report["violations"].values()))
        lines += [
            f"## {TITLES[report['engine']]}",
            "",
            f"Seed {report['seed']}, {report['seconds'] / 60:.0f} minutes: {kills:,} kill -9, {others:,} other faults,",
            f"{answers:,} answered requests, {len(report['promises'])} promises, {broken} violations.",
            "The machine has {processors} processors; its load average was {load}.".format(**report["machine"]),
            *report.get("notes", ()),
            *(f"\n- **{promise.replace('_', ' ')}**: {found[0]}" for promise, found in report["violations"].items()),
            "",
            "| fault | count |",
            "|---|---|",
            *(f"| {name} | {count:,} |" for name, count in sorted(faults.items())),
            "",
            "| seconds until the next | count | p50 | p99 | max |",
            "|---|---|---|---|---|",
            *(row(TAKEOVERS[kind], each) for kind, each in report["takeover_seconds"].items()),
            *(row(f"acknowledged write after: {name}", each) for name, each in report["recovery_seconds"].items()),
            "",
        ]
    lines += ["## Promises", "", *(f"- {promise.replace('_', ' ')}" for promise in reports[0]["promises"]), ""]
    return "\n".join(lines)
