"""Flipped bytes and truncated files: reads return the written data, or the damage is reported."""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from keelbolt.errors import BlobNotFound, CannotOpen, StorageBroken, StorageCorrupt, StorageError
from keelbolt.kernel import (
    Append,
    Attach,
    Collection,
    Draft,
    Enqueue,
    Index,
    Insert,
    Kernel,
    Patch,
    Query,
    Trim,
)
from keelbolt.kernel.sqlite import SQLiteKernel
from tests.faults.conftest import Figures

PARTITION = "damage"
FAMILIES = (
    Collection(
        "doc",
        fields={"state": str, "number": int},
        indexes=(Index("by_state", equal=("state",), order="number"), Index("by_number", order="number")),
        counters=((), ("state",)),
    ),
    Collection("short", expiring=True),
)
STATES = ("open", "done")
DOCS = 60
ENTRIES = 60
ITEMS = 30
BLOBS = (b"small blob", bytes(range(256)) * 1500)

Seen = dict[str, Any]


async def seed(kernel: Kernel) -> None:
    dice = random.Random(7)
    for number in range(DOCS):
        body = dice.randbytes(dice.choice((10, 200, 5000)))
        await kernel.commit(
            PARTITION,
            Insert("doc", f"doc-{number}", body, {"state": STATES[number % 2], "number": number}),
            Insert("short", f"short-{number}", body, expires_in=3600.0),
            Append("log", f"s{number % 3}", (Draft("kind", body, dedupe=f"dedupe-{number}"), Draft("other", b"x"))),
            *(
                [Enqueue("queue", f"item-{number}", lane=f"lane-{number % 4}", priority=number % 3)]
                if number < ITEMS
                else []
            ),
        )
    await kernel.commit(PARTITION, Patch("doc", "doc-1", {"state": "open"}), Trim("log", "s2", 5))
    claims = await kernel.claim("queue", "worker", limit=6, lease_seconds=3600.0)
    await kernel.commit(
        PARTITION, claims[0].bury("a reason"), claims[1].complete(), claims[2].retry("again", ready_in=99)
    )
    for number, data in enumerate(BLOBS):
        blob = await kernel.stage_blob(PARTITION, data)
        await kernel.commit(PARTITION, Attach(blob.digest, f"holder-{number}"))
        await kernel.commit(PARTITION, Attach(blob.digest, "second holder"))


async def look(kernel: Kernel) -> Seen:
    """Return all data, through every kind of read."""
    seen: Seen = {}
    for collection in ("doc", "short"):
        keys = [f"{collection}-{number}" for number in range(DOCS + 1)]
        seen[collection] = list(await kernel.get_many(PARTITION, collection, keys))
    seen["by number"] = (await kernel.find(PARTITION, Query("doc", order="number"), limit=1000)).records
    for state in STATES:
        query = Query("doc", {"state": state}, order="number", newest_first=True)
        seen[state] = (await kernel.find(PARTITION, query, limit=1000)).records
        seen[f"count {state}"] = await kernel.count(PARTITION, Query("doc", {"state": state}))
    seen["count"] = await kernel.count(PARTITION, Query("doc"))
    for stream in ("s0", "s1", "s2", "s3"):
        seen[stream] = await kernel.read_log(PARTITION, "log", stream, limit=1000, max_bytes=1 << 30)
        seen[f"{stream} backward"] = await kernel.read_log(PARTITION, "log", stream, limit=5, backward=True)
        seen[f"{stream} state"] = await kernel.log_state(PARTITION, "log", stream)
    for state in ("waiting", "held", "dead"):
        items = (await kernel.list_work(PARTITION, "queue", state=state, limit=1000)).items  # type: ignore[arg-type]
        seen[state] = [_timeless(item) for item in items]
    known = [await kernel.work(PARTITION, "queue", f"item-{number}") for number in range(ITEMS)]
    seen["work"] = [_timeless(item) for item in known]
    for number, data in enumerate(BLOBS):
        try:
            reader = await kernel.open_blob(PARTITION, sha256(data).hexdigest())
        except BlobNotFound:
            seen[f"blob {number}"] = None
        else:
            seen[f"blob {number}"] = (reader.size, await reader.read(), await reader.range(1, 300_000))
    seen["partitions"] = list(await kernel.partitions())
    return seen


def _timeless(item: Any) -> Any:
    if item is None:
        return None
    return (*[getattr(item, name) for name in item.__slots__ if name != "ready_in"], round(item.ready_in / 1000))


@dataclass
class Specimen:
    """The files of a storage, and its data."""

    path: Path
    seen: Seen

    def copy(self, to: Path) -> Path:
        for file in self.path.parent.glob(f"{self.path.name}*"):
            if file.is_file() and not file.name.endswith(("-shm", "-reserve")):
                shutil.copy(file, to / file.name)
        return to / self.path.name


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Kernel]:
    async with SQLiteKernel(str(path), declare=FAMILIES, reserve=False, readers=1) as kernel:
        yield kernel


async def specimen(folder: Path, *, closed: bool) -> Specimen:
    """Copy the files of a closed storage (all data in the database file) or an open one (all in the WAL)."""
    folder.mkdir()
    path = folder / "kernel.db"
    async with opened(path) as kernel:
        await seed(kernel)
        seen = await look(kernel)
        assert [problem async for problem in kernel.check()] == []
        if not closed:
            other = folder / "copy"
            other.mkdir()
            copy = Specimen(path, seen).copy(other)
            return Specimen(copy, seen)
    return Specimen(path, seen)


async def judge(path: Path, seen: Seen) -> str:
    """Return how the damage shows: reported at opening, by a read or by check(), or harmless; otherwise *silent*."""
    try:
        async with opened(path) as kernel:
            try:
                now = await look(kernel)
            except StorageError as error:
                return _reported_by("reading", error)
            try:
                problems = [problem async for problem in kernel.check()]
            except StorageError as error:
                return _reported_by("check", error)
            if now == seen:
                return "harmless, reported by check" if problems else "harmless"
            if problems:
                return "reported by check only"
            return "an earlier state" if is_earlier(now, seen) else f"SILENT: {_difference(seen, now)}"
    except StorageError as error:
        return _reported_by("opening", error)
    except Exception as error:
        return f"SILENT: no error of ours, {error!r}"


def _reported_by(where: str, error: StorageError) -> str:
    typed = isinstance(error, (StorageCorrupt, StorageBroken, CannotOpen)) or type(error) is StorageError
    return f"reported by {where}" if typed else f"SILENT: a wrong error, {error!r}"


def is_earlier(now: Seen, seen: Seen) -> bool:
    """Return whether this is the state before the last commits: a prefix of every stream, and the rest unchanged."""
    for stream in ("s0", "s1", "s2"):
        entries = {entry.seq: entry for entry in seen[stream].entries}
        if any(entries.get(entry.seq, entry) != entry for entry in now[stream].entries):
            return False
        if now[stream].head > seen[stream].head or len(now[stream].entries) != now[stream].head - now[stream].floor:
            return False
    docs = [one for one, other in zip(now["doc"], seen["doc"], strict=True) if one is not None and one != other]
    return {record.key for record in docs} <= {"doc-1"} and len(now["by number"]) == now["count"].value


def _difference(seen: Seen, now: Seen) -> str:
    return ", ".join(f"{name}" for name in seen if seen[name] != now.get(name))


async def try_all(specimen: Specimen, folder: Path, damages: Sequence[tuple[str, int, int]]) -> dict[str, str]:
    """Each damage is (file's ending, offset, xor mask), or with mask -1 a truncation at the offset; one at a time."""
    outcomes = {}
    for number, (ending, offset, mask) in enumerate(damages):
        place = folder / f"{number}"
        place.mkdir(parents=True)
        path = specimen.copy(place)
        with (place / f"{path.name}{ending}").open("r+b") as file:
            if mask < 0:
                file.truncate(offset)
            else:
                file.seek(offset)
                byte = file.read(1)[0]
                file.seek(offset)
                file.write(bytes([byte ^ mask]))
        outcomes[f"{ending or 'database'}@{offset}^{mask}"] = await judge(path, specimen.seen)
        shutil.rmtree(place)
    return outcomes


def summary(outcomes: dict[str, str]) -> dict[str, int]:
    counts = Counter("silent" if outcome.startswith("SILENT") else outcome for outcome in outcomes.values())
    return {"silent": counts.pop("silent", 0), **dict(sorted(counts.items()))}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("ending", ["", "-wal"])
async def test_a_flipped_byte_is_reported_or_harmless(
    tmp_path: Path, figures: Figures, full: bool, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No flipped byte of the files makes a read silently return wrong data."""
    caplog.set_level(logging.CRITICAL)
    whole = await specimen(tmp_path / "whole", closed=ending == "")
    size = (whole.path.parent / f"{whole.path.name}{ending}").stat().st_size
    dice = random.Random(f"flip{ending}")
    flips = (1200 if ending == "" else 800) if full else 80
    damages = [(ending, dice.randrange(size), 1 << dice.randrange(8)) for _ in range(flips)]
    outcomes = await try_all(whole, tmp_path / "flips", damages)
    name = "database" if ending == "" else "write-ahead log"
    figures(f"flipped bytes, {name}", flips=flips, **summary(outcomes))
    silent = {place: outcome for place, outcome in outcomes.items() if outcome.startswith(("SILENT", "an earlier"))}
    assert silent == {}


@pytest.mark.timeout(900)
async def test_a_flipped_byte_in_any_table_is_reported_or_harmless(
    tmp_path: Path, figures: Figures, full: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The same holds for each table and index; random offsets would rarely hit the small ones."""
    caplog.set_level(logging.CRITICAL)
    whole = await specimen(tmp_path / "whole", closed=True)
    dice = random.Random(11)
    counts: Counter[str] = Counter()
    silent = {}
    for name, pages in trees(whole.path).items():
        content = whole.path.read_bytes()
        damages = [
            ("", place_in(content, dice.choice(pages), dice), 1 << dice.randrange(8)) for _ in range(40 if full else 3)
        ]
        for place, outcome in (await try_all(whole, tmp_path / name, damages)).items():
            counts["silent" if outcome.startswith(("SILENT", "an earlier")) else outcome] += 1
            if outcome.startswith(("SILENT", "an earlier")):
                silent[f"{name} {place}"] = outcome
    figures(
        "flipped bytes, table by table",
        flips=counts.total(),
        silent=counts.pop("silent", 0),
        **dict(sorted(counts.items())),
    )
    assert silent == {}


def trees(path: Path) -> dict[str, list[int]]:
    """Return the pages of every table and index."""
    connection = apsw.Connection(str(path))
    pages: dict[str, list[int]] = {}
    for name, page in connection.execute("SELECT name, pageno FROM dbstat"):
        pages.setdefault(name, []).append(page)
    connection.close()
    return pages


def place_in(content: bytes, page: int, dice: random.Random) -> int:
    """Return the offset of a used byte of the page, most often one of a row."""
    start = (page - 1) * 4096
    header = start + (100 if page == 1 else 0)
    rows = int.from_bytes(content[header + 5 : header + 7], "big") or 65536
    if rows >= 4096 or dice.random() < 0.05:
        return start + dice.randrange(4096)
    return start + dice.randrange(rows, 4096)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("ending", ["", "-wal"])
async def test_a_truncated_file_is_reported_or_harmless(
    tmp_path: Path, figures: Figures, full: bool, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A truncated database file is reported; a truncated write-ahead log loses at most whole commits at its end."""
    caplog.set_level(logging.CRITICAL)
    whole = await specimen(tmp_path / "whole", closed=ending == "")
    size = (whole.path.parent / f"{whole.path.name}{ending}").stat().st_size
    dice = random.Random(f"cut{ending}")
    damages = [(ending, dice.randrange(size), -1) for _ in range(100 if full else 15)]
    outcomes = await try_all(whole, tmp_path / "cuts", damages)
    figures(f"cut {'database' if ending == '' else 'write-ahead log'}", cuts=len(damages), **summary(outcomes))
    bad = "SILENT" if ending == "-wal" else ("SILENT", "an earlier")
    assert not [outcome for outcome in outcomes.values() if outcome.startswith(bad)]
