"""While the storage is away: what could not be written waits in the spool and is replayed in order when it is back.

As long as something waits, everything that comes goes to its end, so that order is kept across the outage. A write that
was in doubt may be written twice; every write of a store is the same twice as once. Of a record the last save counts,
not the last replay: what another process has saved meanwhile stays. What expires has expired while it waited, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from keelbolt.errors import CommitRefused, InvalidRequest
from keelbolt.state.breaker import Breaker
from keelbolt.state.link import Link
from keelbolt.state.policy import Counters, tell_save_failed
from keelbolt.state.spool import Spool
from keelbolt.state.writes import Write, keys_of
from keelbolt.storage import Kernel, Operation, Put


class Recovery:
    """``over`` is called whenever the spool has become empty."""

    def __init__(
        self,
        link: Link,
        spool: Spool,
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
        self._hurry = asyncio.Event()  # somebody waits for the next attempt ...
        self._attempt: asyncio.Future[bool] | None = None  # ... and hears whether it succeeded
        self._newer: dict[tuple[str, str], int] = {}  # what was written while an older write went to the spool

        self._landed: set[int] = set()  # what was written after all, while it waited

    @property
    def active(self) -> bool:
        """Whether something waits."""
        return self._task is not None

    def add(self, write: Write) -> None:
        """Let this write wait; raises when the spool can't take it."""
        write.spooled_at = self._clock()
        self.spool.append(write)
        self._counters.spooled += 1
        self.start()

    def start(self) -> None:
        """Replay what waits, as soon as the storage can be used."""
        if self._task is None and not self._ended and len(self.spool):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def written(self, writes: Iterable[Write]) -> None:
        """These were written before older ones: what those hold of the same records is out of date."""
        for write in writes:
            self._newer.update(dict.fromkeys(keys_of(write.operations), write.number))

    def landed(self, writes: Iterable[Write]) -> None:
        """These had been given up, and were written after all."""
        if self.active:
            self._landed.update(write.number for write in writes)

    def overtaken(self, write: Write) -> set[tuple[str, str]]:
        """The records of this write that later ones have reached."""
        return {key for key in keys_of(write.certain) if self._newer.get(key, 0) > write.number}

    def caught_up(self) -> None:
        """Nothing older is under way any more."""
        if not self.active:
            self._newer.clear()

    async def replay(self) -> None:
        """Return when nothing waits, or the storage still can't be used."""
        while self.active and self._breaker.allows():
            if self._attempt is None:
                self._attempt = asyncio.get_running_loop().create_future()
            self._hurry.set()
            if not await asyncio.shield(self._attempt):
                return

    async def stop(self) -> None:
        """Try once more if that makes sense; then what waits waits on."""
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
            except (InvalidRequest, CommitRefused) as error:  # it would be refused for ever
                if isinstance(error, CommitRefused) and any(life.goes_on(error) for life in write.lives):
                    continue
                tell_save_failed(write.method, write.trace_id, error, key=write.key)
                self._counters.lost += 1
            except Exception as error:  # noqa: BLE001  (whatever a driver raises: the storage can't be used)
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
        """Until the breaker allows another attempt; while it is closed, until somebody waits for one."""
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

    async def _still_wanted(self, kernel: Kernel, write: Write) -> list[Operation]:
        """Without the records that were saved again since, and without what has expired."""
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

    async def _saved_again(self, kernel: Kernel, write: Write) -> set[tuple[str, str]]:
        """The records of this write that a later save has reached, here or in another process."""
        keys = keys_of(write.certain)
        newer = self.overtaken(write)
        for operation in write.certain:
            if isinstance(operation, Put) and isinstance(mine := operation.fields.get("saved"), int):
                record = await kernel.get(write.partition, operation.collection, operation.key)
                its = record.fields.get("saved") if record is not None else None
                if isinstance(its, int) and its > mine:
                    newer |= {found for found in keys if found[1] == operation.key}  # its context goes with a task
        return newer
