"""The lease of one worker incarnation, which every face uses for its work items.

A heartbeat renews it. A process that can't renew it stops its work before the lease ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from keelbolt.errors import CommitRefused, KeelboltError
from keelbolt.kernel import Claim, Kernel, Operation, Scope, new_id

logger = logging.getLogger("keelbolt.leases")

RETIRE_SECONDS = 2.0  # a store that does not respond must not keep a process from stopping


class Heartbeats(Protocol):
    """The part of a kernel that a lease needs."""

    async def heartbeat(self, worker: str, *, lease_seconds: float) -> None: ...

    async def retire(self, worker: str) -> int: ...


class Outage:
    """Logs the first of several consecutive failures of one kind of call, and the success that ends them."""

    def __init__(self, what: str, logger: logging.Logger) -> None:
        """``what`` describes the failure in log lines."""
        self._what = what
        self._logger = logger
        self._since: float | None = None

    def failed(self, error: BaseException) -> bool:
        """Return whether this failure is the first."""
        if self._since is not None:
            return False
        self._since = asyncio.get_running_loop().time()
        self._logger.warning("storage lost: %s until it answers again: %s", self._what, str(error) or "no answer")
        return True

    def ended(self) -> None:
        if self._since is not None:
            seconds, self._since = asyncio.get_running_loop().time() - self._since, None
            self._logger.warning("storage found: it answers again after %.1f s (%s before)", seconds, self._what)


class Lease:
    """``name`` identifies the worker in claims. ``lost`` is called when others may take over; it must stop the work.

    Afterwards the lease continues under a new name.
    """

    def __init__(self, kernel: Heartbeats, *, seconds: float, heartbeat: float, lost: Callable[[], None]) -> None:
        self._kernel = kernel
        self._seconds = seconds
        self._margin = min(2.0, seconds / 5)
        self._heartbeat = heartbeat
        self._lost = lost
        self._outage = Outage("the lease can't be renewed", logger)
        self._renewed = 0.0  # when the last successful heartbeat was sent
        self._beating: asyncio.Task[None] | None = None
        self._former: deque[tuple[str, float]] = deque()  # names under which the lease was lost, and when they retire
        self.name = incarnation()

    async def start(self) -> None:
        """Take the lease and start the heartbeats."""
        await self._renew()
        self._beating = asyncio.create_task(self._beat(), name="heartbeats")

    async def stop(self) -> None:
        """End the lease. Items that are still held become free for others at once."""
        if self._beating is not None:
            await cancelled(self._beating)
            self._beating = None
            with contextlib.suppress(KeelboltError, TimeoutError):
                async with asyncio.timeout(RETIRE_SECONDS):
                    for name in (self.name, *(former for former, _ in self._former)):
                        await self._kernel.retire(name)

    def abandon(self) -> None:
        """Stop renewing the lease and let it expire."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(self._heartbeat, max(0.05, self._left() / 2)))
            if self._left() <= 0:
                self._fence()
            try:
                async with asyncio.timeout(max(0.1, self._left())):
                    await self._renew()
                    await self._retire_former()
            except Exception as error:  # noqa: BLE001 - without heartbeats, the end of the lease would go unnoticed
                self._outage.failed(error)
                await asyncio.sleep(min(0.2, self._heartbeat))
            if self._left() <= 0 and loop.time() > self._renewed:
                self._fence()

    async def _renew(self) -> None:
        sent = asyncio.get_running_loop().time()
        await self._kernel.heartbeat(self.name, lease_seconds=self._seconds)
        self._renewed = sent
        self._outage.ended()

    async def _retire_former(self) -> None:
        """Retire lost names, whose lock and lease the store would keep while this process runs."""
        while self._former and self._former[0][1] <= asyncio.get_running_loop().time():
            await self._kernel.retire(self._former[0][0])
            self._former.popleft()

    def _left(self) -> float:
        """Return the seconds for which this process may rely on its lease, after a safety margin."""
        return self._renewed + self._seconds - self._margin - asyncio.get_running_loop().time()

    def _fence(self) -> None:
        self._lost()
        now = asyncio.get_running_loop().time()
        # Long after the end of its lease: a takeover counts the attempt, so that a task that makes its process lose
        # the lease is given up; retiring the name gives the attempt back.
        self._former.append((self.name, now + self._margin + self._seconds))
        self.name = incarnation()
        self._renewed = now


async def give_back(claim: Claim, *, every: float, unless: Callable[[], bool] = lambda: False) -> None:
    """Release a claim, with retries while the store is away; otherwise the heartbeat would keep it without use."""
    while not unless():
        await asyncio.sleep(every)
        try:
            await claim.scope.commit(claim.release())
        except CommitRefused:
            return
        except KeelboltError:
            continue
        return


async def end_doubtful(
    kernel: Kernel, scope: Scope, queue: str, key: str, worker: str, end: Callable[[int], Sequence[Operation]]
) -> None:
    """Commit the end of an item if this worker holds it: the commit that may have claimed it has no known outcome.

    ``end`` gets the fence of the item; it returns nothing if the item is in use after all. Without this, the heartbeat
    would keep the item without use.
    """
    await kernel.flush()
    item = await scope.work(queue, key)
    if item is not None and item.holder == worker and (operations := end(item.fence)):
        with contextlib.suppress(CommitRefused):
            await scope.commit(*operations)


def incarnation() -> str:
    """Return a new name for a worker incarnation; it contains the host and the process id."""
    return f"{socket.gethostname()[:60]}:{os.getpid()}:{new_id()}"


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended. The error of a task that has failed is logged: a stop continues."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s ended with an error", task.get_name(), exc_info=error)
