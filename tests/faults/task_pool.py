"""A pool of processes that run tasks, and a supervisor that replaces dead ones."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from pathlib import Path
from typing import Any

from tests.faults.processes import Child, Children, Ended
from tests.faults.task_notes import read_notes
from tests.faults.task_worker import LEASE_SECONDS


class Pool:
    """Processes of ``task_worker`` on one storage."""

    def __init__(
        self,
        children: Children,
        folder: Path,
        url: str,
        *,
        seed: int = 1,
        concurrency: int = 8,
        lease: float = LEASE_SECONDS,
        codes: tuple[int, ...] = (-signal.SIGKILL,),
    ) -> None:
        self.url = url
        self.codes = codes  # expected exit codes of members
        self.kills = 0
        self.members: list[Child] = []
        self.dice = random.Random(seed)
        self._children = children
        self._folder = folder
        self._concurrency = concurrency
        self._lease = lease
        self._number = 0

    async def start(self, *, sends: int = 0, crash: str = "") -> Child:
        """Start a member, and wait until it is ready or has crashed."""
        self._number += 1
        notes = self._folder / f"worker-{self._number}.notes"
        child = self._children.start("task_worker", self.url, notes, self._concurrency, sends, self._lease, crash)
        self.members.append(child)
        with contextlib.suppress(Ended):
            child.ready = await asyncio.to_thread(child.line) == "ready"
        return child

    async def fill(self, size: int, *, sends: int = 0, crashes: list[str] | None = None) -> None:
        """Replace dead members; a new one gets the next crash point, if any is left."""
        self.remove_dead()
        missing = range(size - len(self.members))
        await asyncio.gather(*(self.start(sends=sends, crash=crashes.pop() if crashes else "") for _ in missing))

    def kill_one(self) -> None:
        self.remove_dead()
        if self.members:
            self.dice.choice(self.members).kill()
            self.remove_dead()

    def remove_dead(self) -> None:
        """Remove dead members. Fail the test if one ended with an unexpected exit code."""
        for child in tuple(self.members):
            if not child.alive:
                code = child.wait()
                assert code in self.codes, f"a worker ended by itself with {code}"
                child.close()
                self.members.remove(child)
                self.kills += 1

    def notes(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the notes of all members so far, dead ones included."""
        notes = read_notes(sorted(self._folder.glob("worker-*.notes")))
        return [note for note in notes if kind in (None, note["kind"])]

    async def noted(self, kind: str, count: int, seconds: float = 60.0) -> list[dict[str, Any]]:
        """Wait until there are this many notes of this kind."""
        async with asyncio.timeout(seconds):
            while len(found := self.notes(kind)) < count:  # noqa: ASYNC110 - other processes write them
                await asyncio.sleep(0.05)
        return found
