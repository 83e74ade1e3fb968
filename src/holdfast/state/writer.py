"""Brings writes to the storage in the order in which they were called.

It lives in the event loop of the kernel. What nobody waits for is held back while a commit is under way and then
written in one commit with all that came meanwhile; what somebody waits for goes at once, with everything called before.

Under the policy ``resilient`` a write that fails because the storage can't be used goes to the spool, and so does
everything after it until the spool is empty again: order is kept across the outage. A write that was in doubt may be
written twice; every write of a store is the same twice as once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from holdfast.errors import (
    CommitRefused,
    HoldfastError,
    InvalidRequest,
    StateNotSaved,
    StateTimeout,
    StorageBroken,
    StorageUnavailable,
)
from holdfast.state.breaker import Breaker
from holdfast.state.link import Link
from holdfast.state.policy import Counters, PolicyName, logger, tell_save_failed
from holdfast.state.spool import MemorySpool, Spool
from holdfast.state.writes import GROUP_BYTES, GROUP_ENTRIES, Write, keys_of, merged
from holdfast.storage import Kernel, Operation, Put, Receipt


class Writer:
    """One for each kernel."""

    def __init__(self, link: Link, policy: PolicyName, *, timeout_seconds: float, spool: Spool | None = None) -> None:
        self._link = link
        self._policy = policy
        self._timeout = timeout_seconds
        self._queue: deque[Write] = deque()
        self._urgent = 0  # how many in the queue, or waiting for it, do not want to be held back
        self._under_way: dict[asyncio.Future[Receipt], Sequence[Write]] = {}
        self._numbers = 0
        self._newer: dict[tuple[str, str], int] = {}  # what was written while an older write went to the spool
        self._starting: asyncio.Task[None] | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # somebody waits for the next attempt of the recovery ...
        self._attempt: asyncio.Future[bool] | None = None  # ... and hears whether it succeeded
        self._repairs: set[asyncio.Task[None]] = set()
        self._progress: asyncio.Future[None] | None = None  # somebody waits for what happens next
        self._ended = False
        self._first_loss: BaseException | None = None
        self.spool: Spool = spool if spool is not None else MemorySpool()
        self.breaker = Breaker()
        self.counters = Counters()
        self.waiting = 0
        """How many writes are not committed yet, those in the spool aside. Read from other threads too."""
        if len(self.spool):
            self._recover()

    def take(self, writes: Iterable[Write]) -> None:
        """Writes, in the order of their calls."""
        for write in writes:
            self._numbers += 1
            write.number = self._numbers
            self._urgent += write.outcome is not None
            self._queue.append(write)
            self.waiting += 1
        self._pump()

    async def settle(self) -> None:
        """Return when all that was taken before is committed, spooled or lost."""
        last = self._numbers
        if self._oldest() > last:
            return
        self._urgent += 1
        try:
            self._pump()
            while self._oldest() <= last:
                if self._progress is None:
                    self._progress = asyncio.get_running_loop().create_future()
                await asyncio.shield(self._progress)
        finally:
            self._urgent -= 1

    def _oldest(self) -> float:
        """The number of the write that waits longest."""
        numbers = [group[0].number for group in self._under_way.values()]
        if self._queue:
            numbers.append(self._queue[0].number)
        return min(numbers, default=math.inf)

    async def replay(self) -> None:
        """Return when the spool is empty, or the storage still can't be used."""
        while self._recovery is not None and self.breaker.allows():
            if self._attempt is None:
                self._attempt = asyncio.get_running_loop().create_future()
            self._hurry.set()
            if not await asyncio.shield(self._attempt):
                return

    def loss(self) -> BaseException | None:
        """The first write that nobody waited for and that was lost, told once."""
        error, self._first_loss = self._first_loss, None
        return error

    async def close(self) -> None:
        """Commit what was taken, or leave it in the spool."""
        await self.settle()
        if self._recovery is not None:
            if self.breaker.allows():
                await self.replay()
            if self._recovery is not None:
                self._recovery.cancel()
                await asyncio.wait([self._recovery])
                self._attempted(succeeded=False)
        self.give_up()

    def give_up(self) -> None:
        """The end: what is not committed goes to the spool or is reported as lost."""
        if self._ended:
            return
        self._ended = True
        left = [write for writes in self._under_way.values() for write in writes] + list(self._queue)
        self._under_way.clear()
        self._queue.clear()
        for write in left:
            self._failed(write, StateTimeout("the program ended before this was written"))
        if len(self.spool) and isinstance(self.spool, MemorySpool):
            self.counters.lost += len(self.spool)
            logger.critical("%d writes that waited for the storage are lost with this process", len(self.spool))
        self.spool.close()

    # ------------------------------------------------------------------------------------------------- the usual way

    def _pump(self) -> None:
        if self._recovery is not None:
            while self._queue:
                self.waiting -= 1
                self._to_spool(self._next(), StorageUnavailable("the storage is being waited for"))
        while self._queue:
            if self._under_way and not self._urgent and len(self._queue) < GROUP_ENTRIES:
                break  # they go together when what is under way is done
            kernel = self._link.open
            if kernel is None:
                if self._starting is None:
                    self._starting = asyncio.get_running_loop().create_task(self._open())
                break
            self._submit(kernel, self._group())
        progress, self._progress = self._progress, None
        if progress is not None and not progress.done():
            progress.set_result(None)

    def _next(self) -> Write:
        write = self._queue.popleft()
        self._urgent -= write.outcome is not None
        return write

    def _group(self) -> list[Write]:
        """The next writes that can be one commit: one that is waited for, or several that are not."""
        group = [self._next()]
        if group[0].outcome is not None:
            return group
        size, partition = group[0].size, group[0].partition
        while self._queue and len(group) < GROUP_ENTRIES:
            write = self._queue[0]
            size += write.size
            if write.outcome is not None or write.partition != partition or size > GROUP_BYTES:
                break
            group.append(self._next())
        return group

    def _submit(self, kernel: Kernel, group: Sequence[Write]) -> None:
        try:
            future = asyncio.ensure_future(kernel.commit(group[0].partition, *merged(group)))
        except HoldfastError as error:
            self._unwritten(group, error)
            return
        self._under_way[future] = group
        timer = asyncio.get_running_loop().call_later(self._timeout, self._overdue, future)
        future.add_done_callback(partial(self._done, timer))

    def _done(self, timer: asyncio.TimerHandle, future: asyncio.Future[Receipt]) -> None:
        timer.cancel()
        group = self._under_way.pop(future, None)
        if group is not None:
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            if error is None:
                self._written(group)
            else:
                self._unwritten(group, error)
        elif not future.cancelled():
            future.exception()  # it came too late; it was looked after in time
        self._pump()

    def _written(self, group: Sequence[Write]) -> None:
        self.counters.saved += len(group)
        self.waiting -= len(group)
        if self._recovery is None:
            self.breaker.succeeded()
        for write in group:
            if self._recovery is not None:
                self._newer.update(dict.fromkeys(keys_of(write.operations), write.number))
            if write.outcome is not None:
                write.outcome.set_result(None)

    def _overdue(self, future: asyncio.Future[Receipt]) -> None:
        group = self._under_way.pop(future, None)
        if group is not None:
            self._unwritten(group, StateTimeout(f"the storage did not answer within {self._timeout:g} seconds"))
            self._pump()

    # --------------------------------------------------------------------------------------------------- the other way

    async def _open(self) -> None:
        """Open the storage; meanwhile the queue waits, or goes to the spool if it can't be opened in time."""
        error: BaseException | None = None
        try:
            async with asyncio.timeout(self._timeout):
                await self._link.opened()
        except TimeoutError:
            error = StateTimeout(f"the storage could not be opened within {self._timeout:g} seconds")
        except Exception as found:  # noqa: BLE001  (whatever a driver raises: nobody else would hear of it)
            error = found
        self._starting = None
        if error is not None:
            self._unwritten([self._next() for _ in range(len(self._queue))], error)
        self._pump()

    def _unwritten(self, group: Sequence[Write], error: BaseException) -> None:
        kernel = self._link.open
        if len(group) > 1 and isinstance(error, InvalidRequest) and kernel is not None:
            for write in group:  # one of them is wrong
                self._submit(kernel, [write])
            return
        for write in group:
            if isinstance(error, CommitRefused) and write.alternative is not None and kernel is not None:
                write.operations, write.alternative = write.alternative, None  # which may be refused too, then for good
                self._submit(kernel, [write])
            else:
                self._failed(write, error)
        if isinstance(error, StorageBroken) and not self._ended:
            repair = asyncio.get_running_loop().create_task(self._link.broke(error))
            self._repairs.add(repair)
            repair.add_done_callback(self._repairs.discard)

    def _failed(self, write: Write, error: BaseException) -> None:
        self.waiting -= 1
        self.counters.save_failures += 1
        if isinstance(error, StorageUnavailable | StateTimeout):
            self.breaker.failed()
        if self._policy == "resilient" and not isinstance(error, InvalidRequest | CommitRefused):
            self._to_spool(write, error)
            self._recover()
            return
        tell_save_failed(write.method, write.trace_id, error)
        self._lose(write, error)

    def _lose(self, write: Write, error: BaseException) -> None:
        self.counters.lost += 1
        told = StateNotSaved(write.method, error)
        told.__cause__ = error
        if write.outcome is None:
            self._first_loss = self._first_loss or told
        elif self._policy == "strict" or write.vital or isinstance(error, InvalidRequest):
            write.outcome.set_exception(told)
        else:
            write.outcome.set_result(None)

    def _to_spool(self, write: Write, error: BaseException) -> None:
        try:
            self.spool.append(write)
        except (OSError, HoldfastError) as refusal:
            tell_save_failed(write.method, write.trace_id, refusal)
            self._lose(write, refusal)
            return
        self.counters.spooled += 1
        tell_save_failed(write.method, write.trace_id, error, kept=True)
        if write.outcome is not None:
            write.outcome.set_result(None)

    def _recover(self) -> None:
        if self._recovery is None and not self._ended:
            self._recovery = asyncio.get_running_loop().create_task(self._recovering())

    async def _recovering(self) -> None:
        """Replay the spool in order, as soon as the storage can be used; then go on as usual."""
        while (write := self.spool.first()) is not None:
            operations = self._still_wanted(write)
            try:
                if operations:
                    async with asyncio.timeout(self._timeout):
                        kernel = await self._link.opened()
                        await kernel.commit(write.partition, *operations)
            except (InvalidRequest, CommitRefused) as error:  # it would be refused for ever
                tell_save_failed(write.method, write.trace_id, error)
                self.counters.lost += 1
            except Exception as error:  # noqa: BLE001  (whatever a driver raises: the storage can't be used)
                await self._link.broke(error)
                self.breaker.failed()
                self._attempted(succeeded=False)
                await self._rest()
                continue
            else:
                self.breaker.succeeded()
                self.counters.replayed += 1
            self.spool.drop_first()
            self._attempted(succeeded=True)
        self._newer.clear()
        self._recovery = None
        self._attempted(succeeded=True)
        self._pump()

    async def _rest(self) -> None:
        """Until the breaker allows another attempt; while it is closed, until somebody waits for one."""
        if self.breaker.allows():
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self.breaker.seconds_left())
        else:
            await asyncio.sleep(self.breaker.seconds_left())

    def _attempted(self, *, succeeded: bool) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None and not attempt.done():
            attempt.set_result(succeeded)

    def _still_wanted(self, write: Write) -> tuple[Operation, ...]:
        """Without the records that a later write has reached first."""
        return tuple(
            operation
            for operation in write.certain
            if not isinstance(operation, Put)
            or self._newer.get((operation.collection, operation.key), 0) <= write.number
        )
