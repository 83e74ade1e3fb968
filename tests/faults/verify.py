"""Checks that all acknowledged commits of `writer` processes are stored, and none partially."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keelbolt.kernel import Entry, Kernel, Query
from keelbolt.kernel.work import WorkState
from tests.faults.writer import DOCS, PARTITION, STREAMS

PAGE = 5000


@dataclass
class Verdict:
    acknowledged: int = 0
    entries: int = 0
    lost: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    halves: list[str] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds that an acknowledged commit took

    def assert_clean(self) -> None:
        for name in ("lost", "gaps", "halves", "doubles", "problems"):
            found = getattr(self, name)
            assert not found, f"{len(found)} {name}: {found[:5]}"

    def numbers(self) -> dict[str, int]:
        return {
            "acknowledged": self.acknowledged,
            "entries": self.entries,
            "lost": len(self.lost),
            "gaps": len(self.gaps),
            "half_commits": len(self.halves),
            "doubles": len(self.doubles),
        }


def notes_of(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        for line in path.read_text().splitlines():
            yield json.loads(line)


async def verify(kernel: Kernel, notes: Iterable[dict[str, Any]]) -> Verdict:
    verdict = Verdict()
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for note in notes:
        by_kind[note["kind"]].append(note)
        verdict.slowest = max(verdict.slowest, note.get("took", 0.0))
    verdict.acknowledged = sum(len(by_kind[kind]) for kind in ("pair", "group", "made", "done"))
    await _pairs(kernel, by_kind["pair"], verdict)
    await _groups(kernel, by_kind["group"], verdict)
    await _jobs(kernel, by_kind, verdict)
    verdict.problems = [f"{problem.where}: {problem.what}" async for problem in kernel.check()]
    return verdict


async def _entries(kernel: Kernel, log: str, stream: str, verdict: Verdict) -> list[Entry]:
    entries: list[Entry] = []
    while True:
        after = entries[-1].seq if entries else 0
        page = await kernel.read_log(PARTITION, log, stream, after=after, limit=PAGE, max_bytes=1 << 30)
        entries += page.entries
        if not page.entries or page.entries[-1].seq == page.head:
            break
    if [entry.seq for entry in entries] != list(range(1, page.head + 1)):
        verdict.gaps.append(f"{log}/{stream}")
    verdict.entries += len(entries)
    return entries


async def _pairs(kernel: Kernel, notes: list[dict[str, Any]], verdict: Verdict) -> None:
    bodies: dict[tuple[str, int], str] = {}
    for number in range(DOCS):
        key = f"doc-{number}"
        entries = await _entries(kernel, "history", key, verdict)
        record = await kernel.get(PARTITION, "doc", key)
        if (record.version if record else 0) != len(entries) or (record and record.body != entries[-1].data):
            verdict.halves.append(f"{key}: {record} with {len(entries)} entries")
        bodies |= {(key, entry.seq): entry.data.decode() for entry in entries}
    if len(set(bodies.values())) != len(bodies):
        verdict.doubles.append("a pair was written twice")
    for note in notes:
        version, (seq,) = note["outcomes"]
        if version != seq or bodies.get((note["key"], seq)) != note["body"]:
            verdict.lost.append(str(note))


async def _groups(kernel: Kernel, notes: list[dict[str, Any]], verdict: Verdict) -> None:
    tags: dict[tuple[str, int], str] = {}
    kinds: dict[str, str] = defaultdict(str)
    for number in range(STREAMS):
        for entry in await _entries(kernel, "events", f"s{number}", verdict):
            tag = entry.data.decode().rstrip("x")
            tags[f"s{number}", entry.seq] = tag
            kinds[tag] += entry.kind
    for tag, found in kinds.items():
        if sorted(found) != ["a", "b", "c"]:
            verdict.halves.append(f"{tag}: {found}")
    for note in notes:
        for stream, seqs in zip(note["streams"], note["outcomes"], strict=True):
            if any(tags.get((stream, seq)) != note["tag"] for seq in seqs):
                verdict.lost.append(str(note))


async def _jobs(kernel: Kernel, notes: dict[str, list[dict[str, Any]]], verdict: Verdict) -> None:
    made = [entry.data.decode() for entry in await _entries(kernel, "made", "all", verdict)]
    done = [entry.data.decode() for entry in await _entries(kernel, "done", "all", verdict)]
    ended = set(done)
    if len(set(made)) != len(made) or len(ended) != len(done):
        verdict.doubles.append("a job was made or done twice")
    items = await _items(kernel)
    for start in range(0, len(made), 500):
        keys = made[start : start + 500]
        for key, record in zip(keys, await kernel.get_many(PARTITION, "job", keys), strict=True):
            state = record.fields.get("state") if record else None
            if state != ("done" if key in ended else "made") or (key in items) is (key in ended):
                verdict.halves.append(f"job {key}: {state}, waits or is held: {key in items}")
    verdict.lost += [f"made {note['key']}" for note in notes["made"] if note["key"] not in set(made)]
    verdict.lost += [f"done {note['key']}" for note in notes["done"] if note["key"] not in ended]
    for state, number in (("done", len(done)), ("made", len(made) - len(done))):
        count = await kernel.count(PARTITION, Query("job", {"state": state}))
        if count.value != number:
            verdict.halves.append(f"counter {state}: {count.value} for {number}")
    _fences(notes, verdict)


async def _items(kernel: Kernel) -> set[str]:
    states: tuple[WorkState, ...] = ("waiting", "held", "dead")
    keys: set[str] = set()
    for state in states:
        cursor = None
        while True:
            page = await kernel.list_work(PARTITION, "jobs", state=state, limit=PAGE, cursor=cursor)
            keys |= {item.key for item in page.items}
            cursor = page.cursor
            if cursor is None:
                break
    return keys


def _fences(notes: dict[str, list[dict[str, Any]]], verdict: Verdict) -> None:
    """Check that no fence was issued twice, and that each job was done under its last fence."""
    last: dict[str, int] = {}
    given: set[int] = set()
    for note in notes["claim"]:
        if note["fence"] in given:
            verdict.doubles.append(f"fence {note['fence']} was given twice")
        given.add(note["fence"])
        last[note["key"]] = max(last.get(note["key"], 0), note["fence"])
    for note in notes["done"]:
        if last[note["key"]] != note["fence"]:
            verdict.doubles.append(f"{note['key']} was done under fence {note['fence']}, not {last[note['key']]}")
