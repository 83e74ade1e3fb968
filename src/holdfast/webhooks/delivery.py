"""Delivers events to webhooks: in order, at least once, from the task's own log.

The log is the outbox. Each config has a cursor; whoever claims its work item posts the events after the cursor, one by
one, and moves the cursor with each that arrived. A process that dies between the POST and the commit makes the next one
repeat that event, with the same id. A receiver that fails is tried again later, and holds up nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.errors import CommitRefused, HoldfastError, LogTrimmed
from holdfast.observability.metrics import Metrics
from holdfast.protocol import v03, v1
from holdfast.protocol.signatures import CardKey
from holdfast.protocol.versions import Version
from holdfast.storage import Claim, Entry, Operation, Put, QueueTopic
from holdfast.tasks.families import EVENTS, PUSH_CONFIGS, PUSH_CURSORS, WEBHOOKS
from holdfast.tasks.lease import Lease, cancelled
from holdfast.tasks.notes import WIRE_KINDS
from holdfast.tasks.store import TaskStore
from holdfast.webhooks.configs import StoredConfig
from holdfast.webhooks.cursor import Cursor
from holdfast.webhooks.post import Answer, Poster
from holdfast.webhooks.signing import secret_of, standard_headers, token

logger = logging.getLogger("holdfast.webhooks")

POLL_SECONDS = 0.5
LOOK_AGAIN_SECONDS = 5.0  # a config made while a task ran may have missed a nudge


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """How webhooks are delivered."""

    concurrency: int = 100
    give_up_seconds: float = 3 * 86400.0  # a receiver that failed for so long is told nothing more
    lease_seconds: float = 15.0
    heartbeat_seconds: float = 5.0
    secret: str = ""  # signs deliveries to configs that have no token of their own


class Deliverer:
    """Takes the work of delivering, beside any number of others on the same storage."""

    def __init__(
        self,
        store: TaskStore,
        poster: Poster,
        *,
        settings: DeliverySettings | None = None,
        key: CardKey | None = None,
        metrics: Metrics | None = None,
        dice: random.Random | None = None,
        carrier: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.settings = settings or DeliverySettings()
        self._store = store
        self._kernel = store.kernel
        self._poster = poster
        self._key = key
        self._metrics = metrics
        self._dice = dice or random.Random()  # noqa: S311 - scatters retries
        self._carrier = carrier
        self._running: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
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
        """Deliver nothing more; what was not finished is another process's, or comes after the next start."""
        if self._claiming is None:
            return
        await cancelled(self._claiming)
        for task in tuple(self._running):
            await cancelled(task)
        await self._lease.stop()
        await self._poster.aclose()
        self._claiming = None

    def _lost(self) -> None:
        for task in self._running:
            task.cancel()

    # ------------------------------------------------------------------------------------------------------ claims

    async def _claims(self) -> None:
        with self._kernel.watch(QueueTopic(WEBHOOKS)) as watch:
            while True:
                free = self.settings.concurrency - len(self._running)
                if free <= 0:
                    self._freed.clear()
                    await self._freed.wait()
                elif not await self._claim(min(free, 16)):
                    await watch.wait(POLL_SECONDS)

    async def _claim(self, limit: int) -> int:
        try:
            claims = await self._kernel.claim(
                WEBHOOKS, self._lease.name, limit=limit, lease_seconds=self.settings.lease_seconds
            )
        except HoldfastError as error:
            logger.warning("no webhook could be claimed, trying again soon: %s", error)
            await asyncio.sleep(POLL_SECONDS)
            return 0
        for claim in claims:
            task = asyncio.create_task(self._work(claim), name=f"webhook {claim.key}")
            self._running.add(task)
            task.add_done_callback(self._done)
        return len(claims)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._freed.set()

    async def _work(self, claim: Claim) -> None:
        try:
            await self._deliver(claim)
        except CommitRefused:
            pass  # another process has it, or the config is gone
        except HoldfastError as error:
            logger.warning("webhook %s: %s", claim.key, error)
            await self._let_go(claim)

    async def _let_go(self, claim: Claim) -> None:
        try:
            await self._kernel.commit(claim.partition, claim.release(ready_in=POLL_SECONDS))
        except HoldfastError as error:
            logger.warning("webhook %s waits for the end of a lease: %s", claim.key, error)

    # ---------------------------------------------------------------------------------------------------- delivery

    async def _deliver(self, claim: Claim) -> None:
        task_id = claim.key.partition("/")[0]
        found = await self._kernel.get(claim.partition, PUSH_CONFIGS, claim.key)
        record = await self._store.record(claim.partition, task_id)
        if found is None or record is None:
            await self._kernel.commit(claim.partition, claim.complete())
            return
        config = StoredConfig.of(found)
        stored = await self._kernel.get(claim.partition, PUSH_CURSORS, claim.key)
        cursor = Cursor.of(stored) if stored is not None else Cursor()
        if cursor.status == "failed":  # events go on to nudge; only a replay makes it active again
            await self._kernel.commit(claim.partition, claim.bury(cursor.error or "given up"))
            return
        ids = task_id, record.context_id
        while True:
            entries, head = await self._entries(claim.partition, task_id, cursor.seq)
            for entry in entries:
                if not wanted(entry, config.version):
                    cursor = cursor.arrived(entry.seq, counted=False)
                    continue
                answer = await self._post(claim, config, entry, *ids)
                if not answer.ok:
                    await self._failed(claim, cursor, answer)
                    return
                cursor = cursor.arrived(entry.seq)
                await self._save(claim, cursor, claim.fenced())
            if cursor.seq >= head:
                break
        record = await self._store.record(claim.partition, task_id)
        over = record is None or record.state.terminal or record.state.paused
        await self._save(claim, cursor, claim.complete() if over else claim.release(ready_in=LOOK_AGAIN_SECONDS))

    async def _entries(self, partition: str, task_id: str, after: int) -> tuple[tuple[Entry, ...], int]:
        try:
            page = await self._kernel.read_log(partition, EVENTS, task_id, after=after)
        except LogTrimmed:  # the receiver was away for longer than the log is kept
            page = await self._kernel.read_log(partition, EVENTS, task_id)
        return page.entries, page.head

    async def _post(self, claim: Claim, stored: StoredConfig, entry: Entry, task_id: str, context_id: str) -> Answer:
        config = stored.config
        if stored.version is Version.v1_0:
            splice = v1.Splice(task_id, context_id)
            write = splice.artifact_update if entry.kind == "artifact" else splice.status_update
            body, content_type = write(entry.data), "application/a2a+json"
        else:
            task = await self._store.load(claim.partition, task_id)
            body, content_type = v03.task(await self._store.task_json(task)), "application/json"
        delivery_id = f"{task_id}.{config.id}.{entry.seq}"
        moment = self._store.clock.wall() // 1_000_000
        headers = {"Content-Type": content_type, "User-Agent": "holdfast"}
        secret = secret_of(config.token or self.settings.secret)
        headers |= standard_headers(secret, delivery_id, moment, body)
        if config.token:
            headers["X-A2A-Notification-Token"] = config.token
        if config.authentication is not None and config.authentication.credentials:
            headers["Authorization"] = f"{config.authentication.scheme} {config.authentication.credentials}"
        if self._key is not None:
            headers["X-A2A-Notification-JWT"] = token(self._key, config.url, delivery_id, moment, body)
        if self._carrier is not None:
            headers |= self._carrier()
        answer = await self._poster.post(config.url, body, headers)
        if self._metrics is not None:
            self._metrics.webhooks["sent" if answer.ok else "failed"] += 1
        return answer

    async def _failed(self, claim: Claim, cursor: Cursor, answer: Answer) -> None:
        now = self._store.clock.wall() // 1_000_000
        cursor = cursor.failed(answer.error, now)
        if answer.gone or now - cursor.since > self.settings.give_up_seconds:
            logger.warning("webhook %s is given up: %s", claim.key, answer.error)
            await self._save(claim, cursor.given_up(), claim.bury(answer.error or "the receiver wants nothing more"))
            return
        logger.warning("webhook %s failed, and is tried again: %s", claim.key, answer.error)
        await self._save(claim, cursor, claim.release(ready_in=cursor.wait_seconds(self._dice)))

    async def _save(self, claim: Claim, cursor: Cursor, operation: Operation) -> None:
        await self._kernel.commit(claim.partition, Put(PUSH_CURSORS, claim.key, cursor.json()), operation)


def wanted(entry: Entry, version: Version) -> bool:
    """In 1.0 every event is told; in 0.3 the task is, so that only changes of its status matter."""
    return entry.kind in WIRE_KINDS and (version is Version.v1_0 or entry.kind != "artifact")
