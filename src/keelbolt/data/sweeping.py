"""Sweeps a store in the background: removes expired data and data that a retention policy no longer keeps.

Each duty of a store is a work item, so that one process at a time performs it, once per period. A process that dies
while it sweeps loses its lease, and another process continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from pydantic_core import from_json, to_json

from keelbolt.data.erasing import PARTITION, resume_erasures
from keelbolt.data.families import SWEEPS, SWEEPS_COLLECTION, face, faces
from keelbolt.data.retention import FacePolicy
from keelbolt.errors import CommitRefused, KeelboltError
from keelbolt.kernel import Enqueue, Kernel, Put, Query, Swept
from keelbolt.leases import Lease, cancelled

logger = logging.getLogger("keelbolt.data")

EVERY_SECONDS = 600.0
LEASE_SECONDS = 60.0

Removed = Mapping[str, int]
Duty = Callable[[Kernel], Awaitable[Removed]]


async def sweep_expired(kernel: Kernel) -> Removed:
    """Remove data that is no longer needed, in all faces, regardless of policies. Return the removed counts."""
    removed: Counter[str] = Counter()
    await asyncio.to_thread(faces)  # faces may have to be imported, which takes a while
    removed["unfinished erasures"] = await resume_erasures(kernel)
    for each in faces():
        if each.expired is not None:
            removed.update(await each.expired(kernel))
    while (swept := await kernel.sweep()) != Swept():
        removed.update({"expired records": swept.records, "blobs": swept.blobs, "workers": swept.workers})
    return +removed


async def retain(policy: FacePolicy, kernel: Kernel, *, dry: bool = False) -> Removed:
    """Remove the data that the policy no longer keeps, in all partitions of its face; ``dry`` only counts."""
    of = face(policy.face)
    assert of.retain is not None
    return await of.retain(kernel, policy, dry=dry)


async def sweep_in_turn(kernel: Kernel, name: str, duty: Duty, *, every: float) -> Removed | None:
    """Perform this duty, unless a process performs it now or has performed it in the last ``every`` seconds.

    Processes may have different periods, so each one decides by its own. Return the counts of removed items, or None if
    this process did not complete the duty.
    """
    queue = f"{SWEEPS}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"  # one queue per duty: claims can't select
    await kernel.declare(SWEEPS_COLLECTION)
    if await _done_within(every, kernel, name):
        return None
    if await kernel.work(PARTITION, queue, name) is None:
        await kernel.commit(PARTITION, Enqueue(queue, name, max_attempts=1_000_000))
    lost = asyncio.Event()
    lease = Lease(kernel, seconds=LEASE_SECONDS, heartbeat=LEASE_SECONDS / 4, lost=lost.set)
    await lease.start()
    try:
        claims = await kernel.claim(queue, lease.name, lease_seconds=LEASE_SECONDS)
        if not claims:
            return None
        if await _done_within(every, kernel, name):  # between the first check and the claim
            await kernel.commit(PARTITION, claims[0].release())
            return None
        began = time.time()
        removed = await _unless(lost, duty(kernel))
        if removed is None:
            logger.warning("the sweep of %s stopped: its lease could not be renewed", name)
            return None
        body = to_json({"at": began, "seconds": time.time() - began, "removed": removed})
        with contextlib.suppress(CommitRefused):  # another process has taken it over
            await kernel.commit(PARTITION, claims[0].release(), Put(SWEEPS, name, body))
        return removed
    finally:
        await lease.stop()


async def _done_within(seconds: float, kernel: Kernel, name: str) -> bool:
    """Return whether the last sweep of this duty began less than ``seconds`` ago; not if it began in the future."""
    last = await kernel.get(PARTITION, SWEEPS, name)
    return last is not None and 0 <= time.time() - float(from_json(last.body)["at"]) < seconds


async def _unless(lost: asyncio.Event, work: Awaitable[Removed]) -> Removed | None:
    """Await the work and return its result. If the event is set first, cancel the work and return None."""
    doing, waiting = asyncio.ensure_future(work), asyncio.ensure_future(lost.wait())
    try:
        await asyncio.wait((doing, waiting), return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        waiting.cancel()
        doing.cancel()
        await asyncio.gather(doing, waiting, return_exceptions=True)


async def last_sweeps(kernel: Kernel) -> dict[str, Mapping[str, object]]:
    """Return the last sweep of each duty: ``at`` (Unix time), ``seconds`` and ``removed``."""
    await kernel.declare(SWEEPS_COLLECTION)
    return {record.key: from_json(record.body) async for record in kernel.scan(PARTITION, Query(SWEEPS))}


class StoreSweeper:
    """Performs the duties of a store periodically while its process runs."""

    def __init__(
        self,
        kernel: Kernel,
        duties: Mapping[str, Duty],
        *,
        every: float = EVERY_SECONDS,
        swept: Callable[[str, Removed | None], None] | None = None,
    ) -> None:
        """``swept`` is called after each sweep with the duty's name and the removed counts, or None if it failed."""
        self._kernel = kernel
        self._duties = duties
        self._every = every
        self._swept = swept
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.create_task(self._sweeps(), name="sweeper")

    async def stop(self) -> None:
        if self._loop is not None:
            await cancelled(self._loop)
            self._loop = None

    async def _sweeps(self) -> None:
        while True:
            # The random delay spreads the sweeps of processes that were started together.
            await asyncio.sleep(self._every * random.uniform(0.5, 1.5))  # noqa: S311
            for name, duty in self._duties.items():
                try:
                    removed = await sweep_in_turn(self._kernel, name, duty, every=self._every / 2)
                except Exception as error:  # without this loop, nothing would be removed any more
                    unknown = not isinstance(error, KeelboltError)
                    logger.warning("the sweep of %s failed and is retried later: %s", name, error, exc_info=unknown)
                    self._tell(name, None)
                    continue
                if removed is not None:
                    self._tell(name, removed)
                if removed:
                    logger.info("swept %s: %s", name, ", ".join(f"{count} {what}" for what, count in removed.items()))

    def _tell(self, name: str, removed: Removed | None) -> None:
        if self._swept is not None:
            self._swept(name, removed)
