"""Requests to a running task: they go in order through the task's inbox to the run that holds the task.

Every entry is recorded in the task's own log before it takes effect, with its sender and reason. The kernel wakes the
listener when an entry arrives and when the task's log was written; it reads the store only then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic_core import from_json

from keelbolt.errors import KeelboltError, LeaseLost
from keelbolt.kernel import Append, Draft, Enqueue, Entry, Operation, Watch
from keelbolt.tasks.families import EVENTS, INBOX, QUEUE
from keelbolt.tasks.notes import OtherNote
from keelbolt.tasks.parts import json_bytes
from keelbolt.timers import Timer, call_later

if TYPE_CHECKING:
    from keelbolt.tasks.run import TaskRun

logger = logging.getLogger("keelbolt.tasks")

CHECK_SECONDS = 2.0  # interval of `_check`, which reads the store only after a wake-up
STEERING_MAX = 1000  # limits memory for a worker that does not read its steering


class InboxListener:
    """Reads the inbox of one run."""

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        self._watches: tuple[Watch, ...] = ()
        self._timer: Timer | None = None
        self._draining: asyncio.Task[None] | None = None
        self._poked = False
        self._written = False  # whether the task's log was written, by this run or by others
        self._unsure = False  # whether the claim must be checked
        self._noting = asyncio.Lock()
        # A run that repeats a turn gets the steering of the earlier run again.
        again = [steering(OtherNote("steer", body)) for body in run.journal.task.view.steered]
        self._heard: deque[SteeringRequest] = deque(again, maxlen=STEERING_MAX)
        self._news: asyncio.Event | None = None

    def listen(self) -> None:
        """Read the inbox now, and after each wake-up from now on."""
        scope, key = self._run.scope, self._run.journal.claim.key
        self._watches = (
            scope.watch(INBOX, key, self.poke),
            scope.watch(EVENTS, key, self._note_write),
        )
        for watch in self._watches:
            watch.__enter__()
        self._written = True  # the log may have been written before the subscription
        self._timer = call_later(CHECK_SECONDS, self._check)
        self.poke()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for watch in self._watches:
            watch.__exit__(None, None, None)
        if self._draining is not None:
            self._draining.cancel()
            self._draining = None  # a task that had not begun does not reset it
        self.wake()

    def _note_write(self) -> None:
        self._written = True

    def _check(self) -> None:
        """Stop a run that makes no progress or has lost its task, and retry a failed read.

        A process that ends, erases or takes over the task writes to its log. A successful write by this run proves that
        it still holds the task, so a run that writes does not check its claim.
        """
        self._timer = call_later(CHECK_SECONDS, self._check)
        self._run.check_progress()
        if self._written and asyncio.get_running_loop().time() - self._run.journal.progress >= CHECK_SECONDS:
            self._written, self._unsure = False, True
        if self._poked or self._unsure:
            self.poke()

    def poke(self) -> None:
        """Read the inbox soon."""
        self._poked = True
        if self._draining is None and not self._run.ended:
            self._draining = asyncio.create_task(self._drain_soon(), name=f"inbox of {self._run.journal.claim.key}")

    async def _drain_soon(self) -> None:
        try:
            while self._poked and not self._run.ended:
                self._poked = False
                await self.drain()
            if self._unsure:
                await self._check_claim()
                self._unsure = False
        except LeaseLost:
            self._run.stop("lost")
        except KeelboltError as error:
            self._poked = True
            logger.warning("task %s: reading its inbox failed and is retried: %s", self._run.journal.claim.key, error)
        finally:
            self._draining = None

    async def _check_claim(self) -> None:
        """Stop the run if its task was ended, erased or taken over, so that the worker does not continue for long."""
        run, claim = self._run, self._run.journal.claim
        item = await run.scope.work(QUEUE, claim.key)
        if not (run.ended or run.ending) and (item is None or item.holder is None or item.fence != claim.fence):
            run.stop("lost")

    async def drained(self) -> None:
        """Wait until the entries that are being recorded have taken effect."""
        if self._draining is not None:
            await asyncio.wait([self._draining])

    async def drain(self) -> None:
        """Record new entries, then apply them. A lock prevents that an entry is recorded twice."""
        async with self._noting:
            await self._drain()

    async def _drain(self) -> None:
        journal = self._run.journal
        task_id, known = journal.task.record.task_id, journal.task.view.inbox
        page = await self._run.scope.read_log(INBOX, task_id, after=known)
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
        """Wake the waiting readers: an entry arrived, or the turn is over."""
        if self._news is not None:
            self._news.set()

    async def cancelled(self) -> None:
        """Return when the client cancels the task, or the turn is over."""
        self._news = self._news or asyncio.Event()
        while not (self._run.cancel_requested or self._run.ended):
            self._news.clear()
            await self._news.wait()

    async def steering(self) -> AsyncIterator[SteeringRequest]:
        """Yield steering as it arrives, until the turn ends."""
        self._news = self._news or asyncio.Event()
        turn = self._run.journal.task.view.turn
        self.poke()
        while not self._run.ended and self._run.journal.task.view.turn == turn:
            if self._heard:
                yield self._heard.popleft()
            else:
                self._news.clear()
                await self._news.wait()


# ---------------------------------------------------------------------------------------------------------------- inbox


SteeringKind = Literal["inject", "redirect", "pause", "resume", "prioritise"]
STEERING: tuple[str, ...] = get_args(SteeringKind)


@dataclass(frozen=True, slots=True)
class SteeringRequest:
    """A request to a running task: its kind, sender, reason and payload."""

    kind: str
    source: str = ""
    reason: str = ""
    payload: dict[str, Any] = field(default_factory=dict)


def post(
    task_id: str, kind: str, body: dict[str, Any], *, lane: str = "", priority: int = 0, max_attempts: int = 5
) -> list[Operation]:
    """Return the operations that add an entry to the inbox, and make sure that a process reads it."""
    data = json_bytes({name: value for name, value in body.items() if value}, "the inbox entry")
    return [
        Append(INBOX, task_id, (Draft(kind, data),)),
        Enqueue(QUEUE, task_id, lane=lane, priority=priority, max_attempts=max_attempts),
    ]


def noted(entry: Entry) -> OtherNote:
    """Return the note that records an inbox entry in the task's log."""
    return OtherNote("steer", {**from_json(entry.data), "inbox": entry.seq, "kind": entry.kind})


def cancelled(seq: int, body: Mapping[str, Any]) -> OtherNote:
    """Return the note of a cancel that did not go through the inbox. ``seq`` is the last entry of the inbox."""
    given = from_json(json_bytes({name: value for name, value in body.items() if value}, "the cancel request"))
    return OtherNote("steer", {**given, "inbox": seq, "kind": "cancel"})


def steering(note: OtherNote) -> SteeringRequest:
    body = note.body
    return SteeringRequest(body["kind"], body.get("source", ""), body.get("reason", ""), body.get("payload", {}))
