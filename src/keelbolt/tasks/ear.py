"""How a run hears its inbox: what comes is noted in the task's log, and then takes effect."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from keelbolt.errors import KeelboltError, LeaseLost
from keelbolt.storage import LogTopic, Watch
from keelbolt.tasks.families import INBOX, QUEUE
from keelbolt.tasks.inbox import Steering, noted, steering
from keelbolt.tasks.notes import OtherNote

if TYPE_CHECKING:
    from keelbolt.tasks.run import Run

logger = logging.getLogger("keelbolt.tasks")

CHECK_SECONDS = 2.0  # hints of the inbox may be lost; this poll is the guarantee
STEERING_MAX = 1000  # for a worker that does not listen


class Ear:
    """The inbox of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._watch: Watch | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._draining: asyncio.Task[None] | None = None
        self._poked = False
        self._unsure = False  # whether the task is still held
        self._noting = asyncio.Lock()
        # A run that begins the turn anew hears again what came to the turn before.
        again = [steering(OtherNote("steer", body)) for body in run.journal.task.view.steered]
        self._heard: deque[Steering] = deque(again, maxlen=STEERING_MAX)
        self._news: asyncio.Event | None = None

    def listen(self) -> None:
        """Hear what comes from now on."""
        topic = LogTopic(self._run.partition, INBOX, self._run.journal.claim.key)
        self._watch = self._run.store.kernel.watch(topic, self.poke)
        self._watch.__enter__()
        self._check()

    def close(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
        if self._watch is not None:
            self._watch.__exit__(None, None, None)
        if self._draining is not None:
            self._draining.cancel()
        self.wake()

    def _check(self) -> None:
        self._run.check_progress()
        self._unsure = True
        self.poke()
        self._poll = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    def poke(self) -> None:
        """Look into the inbox soon."""
        self._poked = True
        if self._draining is None and not self._run.ended:
            self._draining = asyncio.create_task(self._drain_soon(), name=f"inbox of {self._run.journal.claim.key}")

    async def _drain_soon(self) -> None:
        try:
            while self._poked and not self._run.ended:
                self._poked = False
                await self.drain()
            if self._unsure:
                self._unsure = False
                await self._check_claim()
        except LeaseLost:
            self._run.stop("lost")
        except KeelboltError as error:
            logger.warning("the inbox of task %s: %s", self._run.journal.claim.key, error)
        finally:
            self._draining = None

    async def _check_claim(self) -> None:
        """Stop a worker whose task was ended, erased or taken over by others: it may not write for long."""
        run, claim = self._run, self._run.journal.claim
        item = await run.store.kernel.work(run.partition, QUEUE, claim.key)
        if not (run.ended or run.ending) and (item is None or item.holder is None or item.fence != claim.fence):
            run.stop("lost")

    async def drained(self) -> None:
        """Return when what is being noted right now has taken effect."""
        if self._draining is not None:
            await asyncio.wait([self._draining])

    async def drain(self) -> None:
        """Note what came, then let it take effect; one after the other, so that nothing is noted twice."""
        async with self._noting:
            await self._drain()

    async def _drain(self) -> None:
        journal = self._run.journal
        task_id, known = journal.task.record.task_id, journal.task.view.inbox
        page = await self._run.store.kernel.read_log(self._run.partition, INBOX, task_id, after=known)
        entries = [entry for entry in page.entries if entry.seq > journal.task.view.inbox]
        if not entries or self._run.ended:
            return
        notes = [noted(entry) for entry in entries]
        await journal.write(notes)
        now = self._run.store.clock.wall()
        for entry, note in zip(entries, notes, strict=True):
            self._run.take(note, late=(now - entry.at) / 1_000_000)
            self._heard.append(steering(note))
        self.wake()
        self._poked = self._poked or entries[-1].seq < page.head

    def wake(self) -> None:
        """Whoever listens looks again: something came, or the turn is over."""
        if self._news is not None:
            self._news.set()

    async def cancelled(self) -> None:
        """Return when the client cancels the task, or the turn is over."""
        self._news = self._news or asyncio.Event()
        while not (self._run.cancel_requested or self._run.ended):
            self._news.clear()
            await self._news.wait()

    async def steering(self) -> AsyncIterator[Steering]:
        """What comes, until the turn ends."""
        self._news = self._news or asyncio.Event()
        turn = self._run.journal.task.view.turn
        self.poke()
        while not self._run.ended and self._run.journal.task.view.turn == turn:
            if self._heard:
                yield self._heard.popleft()
            else:
                self._news.clear()
                await self._news.wait()
