"""During an outage of the storage, writes wait in the spool and are replayed in order when the storage is back.

While the spool is not empty, new writes are appended to it, so that order is kept across the outage. A write with an
unknown outcome may be written twice; all writes of a store are idempotent. For a record, the last save wins, not the
last replay: a later save by another process stays. Expiry times include the time in the spool.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from keelbolt.errors import CommitRefused, InvalidRequest
from keelbolt.kernel import Kernel, Operation, Put
from keelbolt.state.engine.breaker import Breaker
from keelbolt.state.engine.connection import StoreConnection
from keelbolt.state.engine.policy import Counters, tell_save_failed
from keelbolt.state.engine.spool import WriteSpool
from keelbolt.state.engine.writes import StateWrite, keys_of


class SpoolReplay:
    """Replays the spool. ``over`` is called whenever the spool has become empty."""

    def __init__(
        self,
        link: StoreConnection,
        spool: WriteSpool,
        breaker: Breaker,
        counters: Counters,
        *,
        timeout_seconds: float,
        over: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spool = spool
        self._link = link
        self._breaker = breaker
        self._counters = counters
        self._timeout = timeout_seconds
        self._over = over
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self._hurry = asyncio.Event()  # set by a caller that waits for the next attempt
        self._attempt: asyncio.Future[bool] | None = None  # the result of that attempt
        self._newer: dict[tuple[str, str], int] = {}  # numbers of writes committed while older ones were spooled

        self._landed: set[int] = set()  # numbers of spooled writes that were committed after all

    @property
    def active(self) -> bool:
        """Whether the spool is being replayed."""
        return self._task is not None

    def add(self, write: StateWrite) -> None:
        """Append this write to the spool; raises if the spool can't take it."""
        write.spooled_at = self._clock()
        self.spool.append(write)
        self._counters.spooled += 1
        self.start()

    def start(self) -> None:
        """Start replaying the spool as soon as the storage is available."""
        if self._task is None and not self._ended and len(self.spool):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def written(self, writes: Iterable[StateWrite]) -> None:
        """Record writes that overtook older ones, whose versions of the same records are now outdated."""
        for write in writes:
            self._newer.update(dict.fromkeys(keys_of(write.operations), write.number))

    def landed(self, writes: Iterable[StateWrite]) -> None:
        """Record writes that had timed out but were committed after all."""
        if self.active:
            self._landed.update(write.number for write in writes)

    def overtaken(self, write: StateWrite) -> set[tuple[str, str]]:
        """Return the records of this write that later writes have already written."""
        return {key for key in keys_of(write.certain) if self._newer.get(key, 0) > write.number}

    def caught_up(self) -> None:
        """Clear the record of later writes: no older write is in progress."""
        if not self.active:
            self._newer.clear()

    async def replay(self) -> None:
        """Return when the spool is empty, or when the storage is still unavailable."""
        while self.active and self._breaker.allows():
            if self._attempt is None:
                self._attempt = asyncio.get_running_loop().create_future()
            self._hurry.set()
            if not await asyncio.shield(self._attempt):
                return

    async def stop(self) -> None:
        """Make a last attempt if the breaker allows it. The remaining writes stay in the spool."""
        await self.replay()
        self._ended = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._attempted(succeeded=False)

    async def _run(self) -> None:
        while (write := self.spool.first()) is not None:
            try:
                async with asyncio.timeout(self._timeout):
                    kernel = await self._link.opened()
                    if operations := await self._still_wanted(kernel, write):
                        await kernel.commit(write.partition, *write.guards, *operations)
            except (InvalidRequest, CommitRefused) as error:  # every retry would be refused as well
                if isinstance(error, CommitRefused) and any(life.goes_on(error) for life in write.lives):
                    continue
                tell_save_failed(write.method, write.trace_id, error, key=write.key)
                self._counters.lost += 1
            except Exception as error:  # noqa: BLE001  (drivers raise any type; the storage is unavailable)
                await self._link.broke(error)
                self._breaker.failed()
                self._attempted(succeeded=False)
                await self._rest()
                continue
            else:
                self._breaker.succeeded()
                self._counters.replayed += 1
                for life in write.lives:
                    life.written()
            self.spool.drop_first()
            self._attempted(succeeded=True)
        self._newer.clear()
        self._landed.clear()
        self._task = None
        self._over()

    async def _rest(self) -> None:
        """Wait until the breaker allows another attempt, or, while it is closed, until a caller requests one."""
        if self._breaker.allows():
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._breaker.seconds_left())
        else:
            await asyncio.sleep(self._breaker.seconds_left())

    def _attempted(self, *, succeeded: bool) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None and not attempt.done():
            attempt.set_result(succeeded)

    async def _still_wanted(self, kernel: Kernel, write: StateWrite) -> list[Operation]:
        """Return the operations without records that were saved again and without expired ones."""
        if write.number in self._landed:
            return []
        newer = await self._saved_again(kernel, write)
        waited = max(0.0, self._clock() - write.spooled_at)
        wanted: list[Operation] = []
        for operation in write.certain:
            if not isinstance(operation, Put):
                wanted.append(operation)
            elif (operation.collection, operation.key) not in newer:
                left = None if operation.expires_in is None else operation.expires_in - waited
                if left is None or left > 0:
                    wanted.append(replace(operation, expires_in=left))
        return wanted

    async def _saved_again(self, kernel: Kernel, write: StateWrite) -> set[tuple[str, str]]:
        """Return the records of this write that a later save has written, here or in another process."""
        keys = keys_of(write.certain)
        newer = self.overtaken(write)
        for operation in write.certain:
            if isinstance(operation, Put) and isinstance(mine := operation.fields.get("saved"), int):
                record = await kernel.get(write.partition, operation.collection, operation.key)
                its = record.fields.get("saved") if record is not None else None
                if isinstance(its, int) and its > mine:
                    newer |= {found for found in keys if found[1] == operation.key}  # a task includes its context
        return newer
