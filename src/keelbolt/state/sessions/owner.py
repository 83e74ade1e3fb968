"""Which process runs which task: a lease for each incarnation of a process, and a record for each task it runs.

The lease is a record that expires by the engine's clock unless it is renewed. A task whose owner has no lease any more
was left behind by a process that died; whoever finds it takes it over with a version check, so that one does.

Demands for a task that another process runs are appended to a log that its owner follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from keelbolt.errors import CommitRefused, KeelboltError, StorageClosed, StorageError
from keelbolt.state.codec import decode, encode
from keelbolt.state.families import INBOXES, OWNERS, RUNS
from keelbolt.state.names import joined, name
from keelbolt.state.sessions.ground import Ground
from keelbolt.state.types.tasks import TaskState
from keelbolt.storage import Append, Delete, Draft, Drop, FieldIn, Kernel, Put, Query, Record, Replace, new_id

BEATS_PER_LEASE = 3

logger = logging.getLogger("keelbolt.state.sessions")


@dataclass(frozen=True, slots=True)
class Run:
    """A task that an incarnation of a process runs, for the ``attempt``-th time."""

    session_id: str
    task_id: str
    task_type: str
    strategy: str
    attempt: int
    owner: str
    version: int = 0

    @property
    def key(self) -> str:
        """Where it is stored."""
        return joined(self.session_id, self.task_id)

    @property
    def held(self) -> FieldIn:
        """The check that nobody has taken the task over."""
        return FieldIn(RUNS, self.key, "owner", (self.owner,))


def _dump(run: Run) -> tuple[bytes, dict[str, str]]:
    body = {part: getattr(run, part) for part in ("session_id", "task_id", "task_type", "strategy", "attempt")}
    return encode(body), {"session": name(run.session_id), "owner": run.owner, "arrived": new_id()}


def _load(record: Record) -> Run:
    return Run(**decode(record.body), owner=str(record.fields["owner"]), version=record.version)


async def list_runs(kernel: Kernel, partition: str, session_id: str) -> Sequence[Run]:
    """The tasks of a session that somebody runs."""
    query = Query(RUNS, {"session": name(session_id)}, order="arrived")
    return [_load(record) async for record in kernel.scan(partition, query)]


class Owner:
    """This incarnation of this process. Lives on the kernel's loop.

    ``heard`` is called with each demand that arrives; when nobody ``wanted`` it any more, it lets its lease go.
    """

    def __init__(
        self,
        ground: Ground,
        heard: Callable[[bytes], None],
        wanted: Callable[[], bool],
        *,
        lease_seconds: float,
    ) -> None:
        self.id = new_id()
        self.lease_seconds = lease_seconds
        self._ground = ground
        self._partition = ground.partition
        self._heard = heard
        self._wanted = wanted
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, kernel: Kernel) -> None:
        """Take the lease, renew it from now on, and listen."""
        await self._beat(kernel)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._keep_alive(), name="session-lease"),
            loop.create_task(self._listen(), name="session-inbox"),
        ]

    @property
    def running(self) -> bool:
        """Whether it renews its lease."""
        return bool(self._tasks) and not self._tasks[0].done()

    async def stop(self, kernel: Kernel) -> None:
        """Let the lease go: what still runs under it is anybody's."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._let_go(kernel)

    async def _let_go(self, kernel: Kernel) -> None:
        with contextlib.suppress(StorageError):
            await kernel.commit(self._partition, Delete(OWNERS, self.id), Drop(INBOXES, self.id))

    # ------------------------------------------------------------------------------------------------------------- runs

    def begin(self, task: TaskState, strategy: str) -> Run:
        """Write down that this process runs the task."""
        run = Run(task.session_id, task.task_id, task.task_type.value, strategy, 1, self.id)
        self._ground.save("begin_run", Put(RUNS, run.key, *_dump(run)))
        return run

    async def alive(self, kernel: Kernel, owners: Sequence[str]) -> set[str]:
        """Which of these incarnations have a lease."""
        leases = await kernel.get_many(self._partition, OWNERS, owners) if owners else ()
        return {owner for owner, lease in zip(owners, leases, strict=True) if lease is not None}

    async def take_over(self, kernel: Kernel, session_id: str, mine: Callable[[Run], bool]) -> Sequence[Run]:
        """The runs of a session whose owners are gone: they are this process's now, nobody else gets them.

        ``mine`` says of a run of this process whether it really runs.
        """
        runs = await list_runs(kernel, self._partition, session_id)
        alive = await self.alive(kernel, sorted({run.owner for run in runs} - {self.id}))
        orphans = [run for run in runs if not (mine(run) if run.owner == self.id else run.owner in alive)]
        found = await asyncio.gather(*(self._take(kernel, run) for run in orphans))
        return [run for run in found if run is not None]

    async def _take(self, kernel: Kernel, run: Run) -> Run | None:
        new = replace(run, owner=self.id, attempt=run.attempt + 1, version=run.version + 1)
        write = Replace(RUNS, run.key, run.version, *_dump(new))
        try:
            forget = () if run.owner == self.id else (Drop(INBOXES, run.owner),)
            await kernel.commit(self._partition, write, *forget)
        except CommitRefused:  # another process was faster
            return None
        return new

    # ---------------------------------------------------------------------------------------------------------- demands

    async def holder(self, kernel: Kernel, key: str) -> str | None:
        """The living process that runs the task, or None."""
        record = await kernel.get(self._partition, RUNS, key)
        owner = str(record.fields["owner"]) if record is not None else None
        return owner if owner is not None and await self.alive(kernel, [owner]) else None

    async def tell(self, kernel: Kernel, owner: str, event_id: str, demand: bytes) -> None:
        """Send a demand to another process."""
        await kernel.commit(self._partition, Append(INBOXES, owner, (Draft("steering", demand, name(event_id)),)))

    # ----------------------------------------------------------------------------------------------------------- living

    async def _beat(self, kernel: Kernel) -> None:
        await kernel.commit(self._partition, Put(OWNERS, self.id, b"{}", expires_in=self.lease_seconds))

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self.lease_seconds / BEATS_PER_LEASE)
            try:
                if not self._wanted():
                    self._tasks[1].cancel()
                    await self._ground.call(self._let_go)
                    return
                await self._ground.call(self._beat)
            except StorageClosed:
                return
            except KeelboltError:
                logger.warning("The lease of this process could not be renewed; trying again.", exc_info=True)

    async def _listen(self) -> None:
        after = 0
        while True:
            try:
                entries = await self._ground.next_entries(INBOXES, self.id, after)
            except StorageClosed:
                return
            for entry in entries:
                after = entry.seq
                self._heard(entry.data)
