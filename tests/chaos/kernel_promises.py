"""Promises of the kernel: commits are atomic, and a check finds no problems."""

from __future__ import annotations

from collections import defaultdict

from keelbolt.kernel import Entry
from tests.chaos.final import Store, Violation, both
from tests.chaos.history import Asked, Histories
from tests.chaos.kernel_user import FAMILIES, PARTITION


async def commits_are_whole(histories: Histories, store: Store) -> list[Violation]:
    """A commit exists with all its parts, once, or not at all."""
    found: list[Violation] = []
    await store.kernel.declare(*FAMILIES)
    for key, asked in _by(histories, "pair").items():
        entries = await _read(store, "pair", key)
        record = await store.kernel.get(PARTITION, "pair", key)
        last = entries[-1].data if entries else None
        if record is None or (record.version, record.body) != (len(entries), last):
            version = record.version if record is not None else 0
            found.append((f"{key} has version {version} and {len(entries)} entries", []))
        found += _lost(asked, entries, key)
    for key, asked in _by(histories, "group").items():
        left, right = await _read(store, "left", key), await _read(store, "right", key)
        if [entry.data for entry in left] != [entry.data for entry in right]:
            found.append((f"{key} has {len(left)} entries in one stream and {len(right)} in the other", []))
        found += _lost(asked, left, key)
    return found


async def a_check_finds_nothing(histories: Histories, store: Store) -> list[Violation]:
    """A check of a healthy store finds no problems, also while other processes write and die."""
    problems = [str(problem) async for problem in store.kernel.check()]
    found: list[Violation] = [(problem, []) for problem in problems]
    for asked in histories.answered("look"):
        assert asked.answer is not None
        if asked.answer["problems"]:
            found.append((asked.answer["problems"][0], both(asked)))
    return found


def _by(histories: Histories, what: str) -> dict[str, list[Asked]]:
    found: dict[str, list[Asked]] = defaultdict(list)
    for asked in histories.answered(what):
        found[asked.asked[what]].append(asked)
    return found


async def _read(store: Store, log: str, key: str) -> list[Entry]:
    entries: list[Entry] = []
    while True:
        page = await store.kernel.read_log(PARTITION, log, key, after=entries[-1].seq if entries else None)
        entries += page.entries
        if not page.entries or entries[-1].seq >= page.head:
            return entries


def _lost(asked: list[Asked], entries: list[Entry], key: str) -> list[Violation]:
    names = [entry.data.decode() for entry in entries]
    lost: list[Violation] = [
        (f"a commit to {key} was acknowledged and is {names.count(each.asked['name'])} times there", both(each))
        for each in asked
        if names.count(each.asked["name"]) != 1
    ]
    if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
        lost.append((f"the log of {key} is not dense", [entry.seq for entry in entries]))
    return lost
