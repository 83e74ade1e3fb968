"""Delivers events to webhooks: in order, at least once, from the task's own log.

The log is the outbox. Each config has a cursor; the process that claims its work item posts the events after the cursor
one by one, and moves the cursor after each delivery. If a process dies between the POST and the commit, the next one
repeats that event with the same id. A failing receiver is retried later, and does not delay other receivers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from keelbolt.errors import CommitRefused, KeelboltError, LogTrimmed, TaskNotFoundError
from keelbolt.kernel import Claim, Entry, Head, Insert, Operation, QueueTopic, Record, Remove, Replace, Scope, Version
from keelbolt.leases import Lease, Outage, cancelled, give_back
from keelbolt.observability.metrics import Metrics
from keelbolt.observability.tracing import Tracing, carried
from keelbolt.protocol.signatures import CardKey
from keelbolt.tasks.families import EVENTS, PUSH_CONFIGS, PUSH_CURSORS, WEBHOOKS
from keelbolt.tasks.pushes import push_ids
from keelbolt.tasks.record import TaskRecord
from keelbolt.tasks.stored_tasks import StoredTasks
from keelbolt.webhooks.configs import StoredConfig
from keelbolt.webhooks.post import Poster, PostResult, WebhookRequest, WebhookRequests, wanted
from keelbolt.webhooks.receivers import LONGEST_SECONDS, DeliveryCursor, Receivers, receiver_of
from keelbolt.webhooks.sealing import Sealer

logger = logging.getLogger("keelbolt.webhooks")

POLL_SECONDS = 0.5
LOOK_AGAIN_SECONDS = 2.0  # the process that runs a task may not know a new config yet
BROKEN_SECONDS = 60.0  # delay before a retry after an unexpected error
CLAIMS = 16  # per call
HOLD_SECONDS = 2.0  # minimum interval at which new events wake a failed receiver
MAX_WAITING = 5_000  # deliveries that wait for a slot of their receiver
RETRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """Settings of webhook delivery."""

    concurrency: int = 200
    give_up_seconds: float = 3 * 86400.0  # a receiver that has failed for this long is given up
    lease_seconds: float = 15.0
    heartbeat_seconds: float = 5.0
    address: str = ""  # address of the server, for links to its files
    secret: str = field(default="", repr=False)  # signs deliveries, in addition to the secret of each config


class Deliverer:
    """Claims and delivers webhooks; any number of processes can do so on the same storage."""

    def __init__(
        self,
        store: StoredTasks,
        poster: Poster,
        *,
        settings: DeliverySettings | None = None,
        key: CardKey | None = None,
        sealer: Sealer | None = None,
        metrics: Metrics | None = None,
        dice: random.Random | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.settings = settings or DeliverySettings()
        self._store = store
        self._kernel = store.kernel
        self._poster = poster
        carrier = tracing.carrier if tracing is not None else None
        self._letters = WebhookRequests(
            store, secret=self.settings.secret, key=key, carrier=carrier, address=self.settings.address
        )
        self._sealer = sealer
        self._tracing = tracing
        self._metrics = metrics
        self._dice = dice or random.Random()  # noqa: S311 - jitter for retries
        self._running: set[asyncio.Task[None]] = set()
        self._given_back: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._receivers = Receivers(self._freed.set)
        self._outage = Outage("no webhook can be claimed", logger)
        self._held = 0  # deliveries that wait for their next attempt
        self._claiming: asyncio.Task[None] | None = None
        self._lease = Lease(
            self._kernel,
            seconds=self.settings.lease_seconds,
            heartbeat=self.settings.heartbeat_seconds,
            lost=self._lost,
        )

    async def start(self) -> None:
        await self._lease.start()
        self._claiming = asyncio.create_task(self._claims(), name="webhooks")

    async def stop(self) -> None:
        """Stop delivering; another process, or the next start, continues with unfinished deliveries."""
        if self._claiming is None:
            return
        await cancelled(self._claiming)
        for task in (*self._running, *self._given_back):
            await cancelled(task)
        await self._lease.stop()
        await self._poster.aclose()
        self._claiming = None

    def _lost(self) -> None:
        if self._metrics is not None:
            self._metrics.events["lease_losses"] += 1
        for task in self._running:
            task.cancel()

    # ------------------------------------------------------------------------------------------------------ claims

    async def _claims(self) -> None:
        with self._kernel.watch(QueueTopic(WEBHOOKS)) as watch:
            while True:
                free = self._free()
                if free <= 0:
                    self._freed.clear()
                    await self._freed.wait()
                elif not await self._claim(min(free, CLAIMS)):
                    await watch.wait(POLL_SECONDS)

    def _free(self) -> int:
        waiting = self._receivers.waiting + self._held
        return self.settings.concurrency + waiting - len(self._running) if waiting < MAX_WAITING else 0

    async def _claim(self, limit: int) -> int:
        name = self._lease.name
        try:
            claims = await self._kernel.claim(WEBHOOKS, name, limit=limit, lease_seconds=self.settings.lease_seconds)
        except KeelboltError as error:
            self._outage.failed(error)
            await asyncio.sleep(POLL_SECONDS)
            return 0
        except Exception:
            logger.exception("no webhook could be claimed; retried in %g s", BROKEN_SECONDS)
            await asyncio.sleep(BROKEN_SECONDS)
            return 0
        self._outage.ended()
        for claim in claims:
            if name != self._lease.name:  # the lease was given up meanwhile, so it is not renewed for these
                self._give_back_later(claim)
                continue
            task = asyncio.create_task(self._work(claim), name=f"webhook {claim.key}")
            self._running.add(task)
            task.add_done_callback(self._done)
        return len(claims)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._freed.set()

    async def _work(self, claim: Claim) -> None:
        try:
            refused = 0
            while refused < RETRIES:
                try:
                    if await self._deliver(claim):
                        return
                except CommitRefused as refusal:
                    if refusal.reason == "fence":  # another process has it, or the config was deleted
                        return
                    refused += 1  # the config was replaced or replayed: read it again
            await self._let_go(claim, POLL_SECONDS)
        except TaskNotFoundError:  # the task was erased meanwhile, with the config
            await self._let_go(claim, POLL_SECONDS)
        except KeelboltError as error:
            logger.warning("webhook %s: %s", claim.key, error)
            await self._let_go(claim, POLL_SECONDS)
        except Exception:
            logger.exception("webhook %s failed; retried in %g s", claim.key, BROKEN_SECONDS)
            await self._let_go(claim, BROKEN_SECONDS)

    async def _let_go(self, claim: Claim, seconds: float) -> None:
        try:
            await claim.scope.commit(claim.release(ready_in=seconds))
        except CommitRefused:
            pass  # another process has it
        except KeelboltError as error:
            logger.warning("webhook %s is released once the storage is reachable: %s", claim.key, error)
            self._give_back_later(claim)

    def _give_back_later(self, claim: Claim) -> None:
        """See `give_back`."""
        task = asyncio.create_task(give_back(claim, every=POLL_SECONDS))
        self._given_back.add(task)
        task.add_done_callback(self._given_back.discard)

    # ---------------------------------------------------------------------------------------------------- delivery

    async def _deliver(self, claim: Claim) -> bool:
        """Read a config and its task once, deliver new events, and end the work item. Return False to read again."""
        task_id = push_ids(claim.key)[0]
        found, record, stored = await asyncio.gather(
            claim.scope.get(PUSH_CONFIGS, claim.key),
            self._store.record(claim.scope, task_id),
            claim.scope.get(PUSH_CURSORS, claim.key),
        )
        if found is None or record is None:
            await claim.scope.commit(claim.complete())
            return True
        progress = DeliveryProgress(claim, stored)
        cursor = progress.cursor
        wait = cursor.due_in(self._now())
        if cursor.status == "failed" and stored is not None:  # new events enqueue it; only a replay makes it active
            await self._hold(HOLD_SECONDS)
            unchanged = Version(PUSH_CURSORS, claim.key, stored.version)
            await claim.scope.commit(unchanged, claim.bury(cursor.error or "given up"))
        elif wait > 0:  # new events enqueue a failed receiver before its retry time
            if self._held < MAX_WAITING:
                await self._hold(min(wait, HOLD_SECONDS))
                return False
            await claim.scope.commit(claim.release(ready_in=min(wait, LONGEST_SECONDS)))
        else:
            try:
                config = StoredConfig.of(found, self._sealer)
                if config.locked:  # a receiver would refuse a delivery without credentials, or accept it unverified
                    answer = PostResult(ok=False, error=config.locked, tried=False, category="config")
                    await self._failed(claim, progress, answer)
                else:
                    await self._tell(claim, config, record, progress)
            finally:
                progress.abandon()
        return True

    async def _hold(self, seconds: float) -> None:
        """Wait without using a slot. While the work item is held, new events do not wake other processes."""
        self._held += 1
        self._freed.set()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._held -= 1

    async def _tell(self, claim: Claim, config: StoredConfig, record: TaskRecord, progress: DeliveryProgress) -> None:
        """Deliver the events in the log, until none is left or a delivery fails."""
        while await self._post_new(claim, config, record, progress):
            now = await self._store.record(claim.scope, record.task_id) if progress.cursor.late else None
            if now is not None and not (now.state.terminal or now.state.paused):
                await progress.end(progress.cursor, claim.release(ready_in=LOOK_AGAIN_SECONDS))
                return
            # The commit that appends an event also enqueues this work item. So it is removed only if the log has no
            # event after the last delivered one; if it were completed, it would run again and find nothing.
            drained = Head(EVENTS, record.task_id, progress.cursor.seq)
            try:
                await progress.end(progress.cursor, claim.fenced(), drained, Remove(WEBHOOKS, claim.key))
            except CommitRefused as refusal:
                if refusal.check != drained:
                    raise
            else:
                return

    async def _post_new(
        self, claim: Claim, config: StoredConfig, record: TaskRecord, progress: DeliveryProgress
    ) -> bool:
        """Post the events after the cursor; return False if one failed and the work item was released for a retry."""
        while True:
            entries, head = await self._entries(claim.scope, record, progress.cursor.seq)
            for entry in entries:
                if not wanted(entry, config.version):
                    progress.cursor = progress.cursor.arrived(entry.seq, counted=False)
                    continue
                with self._span(record, entry):
                    letter = await self._letters.write(claim.scope, record, config, entry)
                    answer = await self._post(letter)
                if not answer.ok:
                    await self._failed(claim, progress, answer)
                    return False
                now = self._now()
                if self._metrics is not None:
                    self._metrics.webhook_lag.add(max(0.0, now - entry.at / 1_000_000))
                arrived = progress.cursor.tried(now, answer.code).arrived(entry.seq)
                if entry.seq < head:
                    await progress.moved(arrived)
                else:  # the last one for now: its cursor is saved when this work item ends
                    progress.cursor = arrived
            if progress.cursor.seq >= head or not entries:
                return True

    def _span(self, record: TaskRecord, entry: Entry) -> AbstractContextManager[object]:
        """Return the span of a delivery, in the trace of the task's request; the receiver may continue it."""
        if self._tracing is None:
            return nullcontext()
        parent = carried(record.turn.request)
        return self._tracing.span("keelbolt.webhook", "client", parent=parent, task=record.task_id, seq=entry.seq)

    async def _entries(self, scope: Scope, record: TaskRecord, after: int) -> tuple[Sequence[Entry], int]:
        try:
            page = await scope.read_log(EVENTS, record.task_id, after=after)
        except LogTrimmed as trimmed:  # the receiver was down for longer than the log is kept: send the current status
            page = await scope.read_log(EVENTS, record.task_id)
            if not page.entries:
                now = await self._store.record(scope, record.task_id) or record
                return [Entry(trimmed.head, "status", b'{"status":%b}' % now.status, now.updated)], trimmed.head
        return page.entries, page.head

    async def _post(self, letter: WebhookRequest) -> PostResult:
        receiver = receiver_of(letter.url)
        if not await self._receivers.enter(receiver):
            reason = "the receiver does not respond; another delivery is probing it"
            return PostResult(ok=False, error=reason, tried=False, category="receiver")
        silent = False
        try:
            answer = await self._poster.post(letter.url, letter.body, letter.headers)
            silent = answer.silent
        finally:
            self._receivers.leave(receiver, silent=silent)
        if self._metrics is not None:
            self._metrics.webhooks["sent" if answer.ok else "failed"] += 1
        return answer

    async def _failed(self, claim: Claim, progress: DeliveryProgress, answer: PostResult) -> None:
        now = self._now()
        cursor = progress.cursor.tried(now, answer.code) if answer.tried else progress.cursor
        cursor = cursor.failed(answer.error, now, self._dice, category=answer.category)
        if answer.gone or now - cursor.since > self.settings.give_up_seconds:
            logger.warning("webhook %s is given up: %s", claim.key, answer.error)
            reason = "the receiver returned 410 (Gone)" if answer.gone else answer.error
            await progress.end(cursor.given_up(), claim.bury(reason))
            return
        wait = cursor.retry_at - now
        level = logging.WARNING if cursor.failures == 1 else logging.INFO  # log a long outage once
        logger.log(level, "webhook %s failed; retried in %.0f s: %s", claim.key, wait, answer.error)
        await progress.end(cursor, claim.release(ready_in=wait))

    def _now(self) -> float:
        return self._store.clock.wall() / 1_000_000


# ------------------------------------------------------------------------------------------------------------- progress


SAVE_SECONDS = 0.25


class DeliveryProgress:
    """``cursor`` is the current position. A write of it is refused if another process or a replay has changed it."""

    def __init__(self, claim: Claim, stored: Record | None) -> None:
        self.cursor = DeliveryCursor.of(stored) if stored is not None else DeliveryCursor()
        self._claim = claim
        self._version = stored.version if stored is not None else 0
        self._saving: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._saved_at = self._loop.time()

    async def moved(self, cursor: DeliveryCursor) -> None:
        """Move the cursor after a delivery. Raises CommitRefused if the previous save was refused."""
        now = self._loop.time()
        if now - self._saved_at < SAVE_SECONDS:
            self.cursor = cursor
            return
        await self._saved()
        self.cursor, self._saved_at = cursor, now
        self._saving = asyncio.create_task(self._save(self._claim.fenced()), name=f"cursor of {self._claim.key}")
        self._saving.add_done_callback(_looked_at)

    async def end(self, cursor: DeliveryCursor, *operations: Operation) -> None:
        """Save the cursor, together with the end of the work item."""
        await self._saved()
        self.cursor = cursor
        await self._save(*operations)

    def abandon(self) -> None:
        if self._saving is not None:
            self._saving.cancel()

    async def _saved(self) -> None:
        saving, self._saving = self._saving, None
        if saving is not None:
            await saving

    async def _save(self, *operations: Operation) -> None:
        key, body = self._claim.key, self.cursor.json()
        write = Replace(PUSH_CURSORS, key, self._version, body) if self._version else Insert(PUSH_CURSORS, key, body)
        await self._claim.scope.commit(write, *operations)
        self._version += 1


def _looked_at(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # the process that continues raises it; otherwise it is not needed
