"""Commits writes to the storage in call order.

It runs in the event loop of the kernel. Plain writes that arrive during a commit wait for it and then share one commit.
Other writes are submitted at once, after all earlier writes.

Under the policy ``resilient``, a write that fails because the storage is unavailable goes to the `SpoolReplay`, and so
do all later writes until the replay is over.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from keelbolt.errors import (
    CommitRefused,
    InvalidRequest,
    KeelboltError,
    LeaseLost,
    StateConflict,
    StateErased,
    StateNotSaved,
    StateTimeout,
    StorageBroken,
    StorageClosed,
    StorageUnavailable,
    StorageUnreachable,
)
from keelbolt.kernel import Insert, Kernel, Operation, Put, Receipt, Replace
from keelbolt.kernel.requests import MAX_OPERATIONS
from keelbolt.state.engine.connection import (
    CLOSED,
    Breaker,
    Counters,
    PolicyName,
    StoreConnection,
    logger,
    tell_save_failed,
)
from keelbolt.state.engine.spool import MemorySpool, SpoolReplay, WriteSpool
from keelbolt.state.engine.writes import (
    GROUP_BYTES,
    GROUP_ENTRIES,
    Saving,
    StateWrite,
    keys_of,
    merged,
    refused_for_good,
    settle,
)

REMEMBERED_LOSSES = 10_000
CROWD = 8  # minimum writes in a commit after which its callers are expected to save again at once
LINGER_SECONDS = 0.002


class StateWriter:
    """Commits the writes of one kernel."""

    def __init__(
        self, link: StoreConnection, policy: PolicyName, *, timeout_seconds: float, spool: WriteSpool | None = None
    ) -> None:
        self._link = link
        self._policy = policy
        self._timeout = timeout_seconds
        self._queue: deque[StateWrite] = deque()
        self._urgent = 0  # queued writes and callers of settle() that must not wait for the commit in progress
        self._under_way: dict[asyncio.Future[Receipt], Sequence[StateWrite]] = {}
        self._numbers = 0
        self._crowd = 0  # writes expected soon: those of the last commit's callers and of the queue
        self._lingering: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None
        self._repairs: set[asyncio.Task[None]] = set()
        self._progress: asyncio.Future[None] | None = None  # set while a caller of settle() waits for progress
        self._ended = False
        self._losses: list[tuple[str, Saving | None, StateNotSaved]] = []  # partition, outcome, error
        self.breaker = Breaker()
        self.counters = Counters()
        self.waiting = 0
        """Number of uncommitted writes, without those in the spool. Also read from other threads."""
        self.recovery = SpoolReplay(
            link,
            spool if spool is not None else MemorySpool(),
            self.breaker,
            self.counters,
            timeout_seconds=timeout_seconds,
            over=self._pump,
        )
        self.recovery.start()

    def take(self, writes: Iterable[StateWrite]) -> None:
        """Queue writes in call order."""
        for write in writes:
            self._numbers += 1
            write.number = self._numbers
            self._urgent += not write.plain
            self._queue.append(write)
            self.waiting += 1
        if self._ended:  # posted while the writer ended
            while self._queue:
                self._failed(self._next(), StorageClosed(CLOSED))
        self._pump()

    async def settle(self) -> None:
        """Return when all writes taken before are committed, spooled or lost."""
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
        """Return the number of the oldest uncommitted write."""
        numbers = [group[0].number for group in self._under_way.values()]
        if self._queue:
            numbers.append(self._queue[0].number)
        return min(numbers, default=math.inf)

    def loss(self, partition: str) -> BaseException | None:
        """Return the first lost write to this partition that no caller awaits, once; the others are logged."""
        if not self._losses:
            return None
        unheard = [loss for loss in self._losses if _unheard(loss[1])]
        self._losses = [loss for loss in unheard if loss[0] != partition]
        return next((error for place, _, error in unheard if place == partition), None)

    def unreported(self) -> str:
        """Return a line about losses that no call has raised; "" if there are none."""
        unheard, self._losses = [error for _, outcome, error in self._losses if _unheard(outcome)], []
        count = len(unheard)
        return f"{count} saved item{'s' if count > 1 else ''} of state lost; the first: {unheard[0]}" if unheard else ""

    async def close(self) -> None:
        """Commit all writes, or leave them in the spool."""
        await self.settle()
        await self.recovery.stop()
        self.give_up()

    def give_up(self) -> None:
        """End the writer: uncommitted writes go to the spool or are reported as lost."""
        if self._ended:
            return
        self._ended = True
        left = [write for writes in self._under_way.values() for write in writes] + list(self._queue)
        self._under_way.clear()
        self._queue.clear()
        for write in left:
            self._failed(write, StateTimeout("the program ended before this write was stored"))
        spool = self.recovery.spool
        if len(spool) and isinstance(spool, MemorySpool):
            self.counters.lost += len(spool)
            logger.critical("%d unstored writes are lost because this process ends", len(spool))
        spool.close()

    # ------------------------------------------------------------------------------------------------------- commits

    def _pump(self) -> None:
        if self.recovery.active:
            while self._queue:
                self.waiting -= 1
                self._to_spool(
                    self._next(), StorageUnreachable("the storage is unavailable; earlier writes wait in the spool")
                )
        while self._queue:
            if self._under_way and not self._urgent and len(self._queue) < GROUP_ENTRIES:
                break  # they share a commit when the one in progress is done
            if self._lingers():
                break
            kernel = self._link.open
            if kernel is None:
                if self._starting is None:
                    self._starting = asyncio.get_running_loop().create_task(self._open())
                break
            self._submit(kernel, self._group())
        if not self._under_way:
            self.recovery.caught_up()
        progress, self._progress = self._progress, None
        if progress is not None and not progress.done():
            progress.set_result(None)

    def _lingers(self) -> bool:
        """Return whether to wait briefly: the callers of the last commit just got their results and save again.

        Without this, the first of them would get a commit of its own, and all others would wait for two commits.
        """
        if self._urgent or len(self._queue) >= self._crowd:
            if self._lingering is not None:
                self._lingering.cancel()
                self._lingering = None
            return False
        if self._lingering is None:
            self._lingering = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._linger_no_longer)
        return True

    def _linger_no_longer(self) -> None:
        self._lingering, self._crowd = None, 0
        self._pump()

    def _next(self) -> StateWrite:
        write = self._queue.popleft()
        self._urgent -= not write.plain
        return write

    def _group(self) -> list[StateWrite]:
        """Return the next writes that can share a commit: one write with its own checks, or several without."""
        group = [self._next()]
        if not group[0].plain:
            return group
        size, operations, partition = group[0].size, group[0].count, group[0].partition
        while self._queue and len(group) < GROUP_ENTRIES:
            write = self._queue[0]
            size += write.size
            operations += write.count
            if write.partition != partition or not write.plain:
                break
            if size > GROUP_BYTES or operations > MAX_OPERATIONS:
                break
            group.append(self._next())
        return group

    def _submit(self, kernel: Kernel, group: Sequence[StateWrite]) -> None:
        operations = merged(group)
        if not operations:  # later writes have replaced all of its records
            self._written(group)
            return
        try:
            future = asyncio.ensure_future(kernel.commit(group[0].partition, *operations))
        except Exception as error:  # noqa: BLE001  (every error is reported to the waiting callers)
            self._unwritten(group, error)
            return
        self._under_way[future] = group
        timer = asyncio.get_running_loop().call_later(self._timeout, self._overdue, future)
        future.add_done_callback(partial(self._done, timer, group))

    def _done(self, timer: asyncio.TimerHandle, group: Sequence[StateWrite], future: asyncio.Future[Receipt]) -> None:
        timer.cancel()
        if self._under_way.pop(future, None) is not None:
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            if error is None:
                self._crowd = len(group) + len(self._queue) if len(group) >= CROWD else 0
                self._written(group)
            else:
                self._unwritten(group, error)
        elif not future.cancelled() and future.exception() is None:
            self.recovery.landed(group)  # too late for its callers, but it must not be replayed
        self._pump()

    def _written(self, group: Sequence[StateWrite]) -> None:
        self.counters.saved += len(group)
        self.waiting -= len(group)
        for write in group:
            for life in write.lives:
                life.written()
        if not self.recovery.active:
            self.breaker.succeeded()
        if self.recovery.active or self._oldest() < group[0].number:
            self.recovery.written(group)
        settle([write.outcome for write in group if write.outcome is not None])

    def _overdue(self, future: asyncio.Future[Receipt]) -> None:
        group = self._under_way.pop(future, None)
        if group is not None:
            self._unwritten(group, StateTimeout(f"the storage did not respond within {self._timeout:g} seconds"))
            self._pump()

    # -------------------------------------------------------------------------------------------------------- failures

    async def _open(self) -> None:
        """Open the storage; meanwhile writes are queued, or go to the spool if it can't be opened in time."""
        error: BaseException | None = None
        try:
            async with asyncio.timeout(self._timeout):
                await self._link.opened()
        except TimeoutError:
            error = StateTimeout(f"the storage could not be opened within {self._timeout:g} seconds")
        except Exception as found:  # noqa: BLE001  (drivers raise any type, and no caller awaits this task)
            error = found
        self._starting = None
        if error is not None:
            self._unwritten([self._next() for _ in range(len(self._queue))], error)
        self._pump()

    def _unwritten(self, group: Sequence[StateWrite], error: BaseException) -> None:
        kernel = self._link.open
        if len(group) > 1 and isinstance(error, InvalidRequest | CommitRefused) and kernel is not None:
            for write in group:  # at least one of them is invalid
                write.operations = self._not_overtaken(write)
                self._submit(kernel, [write])
            return
        for write in group:
            if not isinstance(error, CommitRefused) or kernel is None:
                self._failed(write, error)
            elif any(life.goes_on(error) for life in write.lives):
                self._submit(kernel, [write])
            elif (final := refused_for_good(write.method, error)) is not None:
                self._failed(write, final)
            elif write.alternative is not None:
                write.operations, write.alternative = self._not_overtaken(write), None  # a second refusal is final
                self._submit(kernel, [write])
            else:
                self._failed(write, error)
        if isinstance(error, StorageBroken) and not self._ended:
            repair = asyncio.get_running_loop().create_task(self._link.broke(error))
            self._repairs.add(repair)
            repair.add_done_callback(self._repairs.discard)

    def _not_overtaken(self, write: StateWrite) -> tuple[Operation, ...]:
        """Return the operations for another attempt, without records that later writes have written or are writing."""
        overtaken = self.recovery.overtaken(write)
        for later in (later for group in self._under_way.values() for later in group):
            if later.number > write.number:
                overtaken.update(keys_of(later.certain))
        return tuple(
            operation
            for operation in write.certain
            if not isinstance(operation, Put) or (operation.collection, operation.key) not in overtaken
        )

    def _failed(self, write: StateWrite, error: BaseException) -> None:
        self.waiting -= 1
        self.counters.save_failures += 1
        if isinstance(error, StorageUnavailable | StateTimeout):
            self.breaker.failed()
        if self._policy == "resilient" and not isinstance(
            error, InvalidRequest | CommitRefused | LeaseLost | StateErased
        ):
            self._to_spool(write, error)
            return
        tell_save_failed(write.method, write.trace_id, error, key=write.key)
        self._lose(write, error)

    def _lose(self, write: StateWrite, error: BaseException) -> None:
        self.counters.lost += 1
        reported = error
        if not isinstance(error, LeaseLost | StateErased):  # these two are no data loss
            reported = (StateConflict if isinstance(error, CommitRefused) else StateNotSaved)(write.method, error)
            reported.__cause__ = error
            if _unheard(write.outcome) and len(self._losses) < REMEMBERED_LOSSES:
                error.with_traceback(None)  # its frames hold the write, which may be large
                self._losses.append((write.partition, write.outcome, reported))
        if write.outcome is None:
            return
        if self._policy == "strict" or write.vital or isinstance(error, InvalidRequest):
            settle((write.outcome,), reported)
        else:
            settle((write.outcome,))

    def _to_spool(self, write: StateWrite, error: BaseException) -> None:
        if any(isinstance(operation, Insert | Replace) for operation in write.certain):
            # Its result depends on the stored state, so it can't be acknowledged now and refused later.
            tell_save_failed(write.method, write.trace_id, error, key=write.key)
            self._lose(write, error)
            return
        try:
            self.recovery.add(write)
        except (OSError, KeelboltError) as refusal:
            tell_save_failed(write.method, write.trace_id, refusal, key=write.key)
            self._lose(write, refusal)
            return
        tell_save_failed(write.method, write.trace_id, error, key=write.key, kept=True)
        if write.outcome is not None:
            settle((write.outcome,))


def _unheard(outcome: Saving | None) -> bool:
    return outcome is None or not outcome.heard
