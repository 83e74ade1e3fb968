"""Retention of a store's data. Without a policy, only expired data is removed.

    await store.sweep(StateRetention(events=days(30), max_updates=10_000))

A sweep removes the data that a policy no longer keeps, page by page, in constant memory. An interrupted sweep can
continue. The store can be used meanwhile: a record that is saved during its removal stays. Logs are trimmed by age and
number; the search reads few entries, regardless of the log's length. A store in use sweeps periodically.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from keelbolt.data.sweeping import Removed, sweep_expired, sweep_in_turn
from keelbolt.errors import CommitRefused, InvalidState, LogTrimmed
from keelbolt.kernel import Delete, Drop, Head, Kernel, Operation, Put, Query, Record, Remove, Scope, Trim, Version
from keelbolt.state.artifacts.record import NEVER, ArtifactRecord, Owner
from keelbolt.state.artifacts.repository import ArtifactRepository, WriteOrder
from keelbolt.state.codec import decode, encode
from keelbolt.state.engine.connection import logger
from keelbolt.state.events.streams import items_of
from keelbolt.state.families import (
    ARTIFACTS,
    BINDINGS,
    CONTEXTS,
    CONTROLS,
    EVENTS,
    INBOXES,
    MEMORY,
    PATCHES,
    PLANNER_EVENTS,
    RUNS,
    SESSIONS,
    SNAPSHOTS,
    STEERING,
    SWEEPS,
    TASK_ORDER,
    TASKS,
    TRACES,
    TRAJECTORIES,
    UPDATES,
    StateRetention,
)
from keelbolt.state.types import ArtifactRetentionConfig


async def forget_trace(scope: Scope, noted: Record) -> bool:
    """Remove the note and the empty logs of a trace that has no data; return whether it was removed."""
    logs = (EVENTS, PLANNER_EVENTS)
    states = await asyncio.gather(*(scope.log_state(log, noted.key) for log in logs))
    if any(state.head > state.floor for state in states):
        return False
    for collection in (TRAJECTORIES, BINDINGS):
        if (await scope.count(Query(collection, {"trace": noted.key}, order="saved"), cap=1)).value:
            return False
    operations: list[Operation] = [Delete(TRACES, noted.key, version=noted.version)]
    for log, state in zip(logs, states, strict=True):
        operations += [Head(log, noted.key, state.head), Drop(log, noted.key)]
    return await _done(scope, *operations)


async def forget_session(scope: Scope, noted: Record) -> bool:
    """Remove all data of a session except its artifacts, then its note. Return False if it was used meanwhile."""
    ref = noted.key
    unused = Version(SESSIONS, ref, noted.version)
    for collection, order in (
        (TASKS, None),
        (SNAPSHOTS, None),
        (TRAJECTORIES, "saved"),
        (BINDINGS, "saved"),
        (PATCHES, "arrived"),
        (CONTROLS, "arrived"),
        (RUNS, "arrived"),
    ):
        query = Query(collection, {"session": ref}, order=order)
        while records := (await scope.find(query, limit=PAGE)).records:
            gone: list[Operation] = [Delete(collection, record.key, version=record.version) for record in records]
            if collection == RUNS:
                gone += [each for record in records for each in (Remove(RUNS, record.key), Drop(INBOXES, record.key))]
            if not await _done(scope, unused, *gone):
                return False
    logs = (UPDATES, STEERING, TASK_ORDER)
    heads = await asyncio.gather(*(scope.log_state(log, ref) for log in logs))
    operations: list[Operation] = [Delete(SESSIONS, ref, version=noted.version), Delete(CONTEXTS, ref)]
    for log, state in zip(logs, heads, strict=True):
        operations += [Head(log, ref, state.head), Drop(log, ref)]
    return await _done(scope, *operations)


async def _done(scope: Scope, *operations: Operation) -> bool:
    try:
        await scope.commit(*operations)
    except CommitRefused:  # used meanwhile
        return False
    return True


PAGE = 100
NOTED_SECONDS = 2 * 3600.0  # processes write a note every hour, and its commit may be delayed

_OVER = ("COMPLETE", "FAILED", "CANCELLED")
_KV = "kv:v1:"  # values of tools have no time


@dataclass(slots=True)
class StateSwept:
    """Counts of removed items; for logs, of entries (events that arrived together are one entry)."""

    events: int = 0
    planner_events: int = 0
    updates: int = 0
    steering: int = 0
    tasks: int = 0
    trajectories: int = 0
    bindings: int = 0
    memory: int = 0
    artifacts: int = 0
    traces: int = 0
    sessions: int = 0

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))


async def sweep_state(
    scope: Scope,
    policy: StateRetention,
    *,
    clock: Callable[[], float] = time.time,
    dry: bool = False,
) -> StateSwept:
    """Remove data that the policy no longer keeps, and expired data, and return the counts.

    ``clock`` is Unix time in seconds. ``dry`` only counts the data that the policy no longer keeps.
    """
    sweep = _Sweep(scope, policy, clock, dry=dry)
    await sweep.traces()
    await sweep.sessions()
    await sweep.records()
    return sweep.swept


class _Sweep:
    def __init__(self, scope: Scope, policy: StateRetention, clock: Callable[[], float], *, dry: bool) -> None:
        self._dry = dry
        self._scope = scope
        self._policy = policy
        self._now = int(clock() * 1_000_000)
        self._shelf = ArtifactRepository(scope, ArtifactRetentionConfig(), WriteOrder(clock))
        self.swept = StateSwept()

    # ------------------------------------------------------------------------------------------------------- traces

    async def traces(self) -> None:
        """Trim the logs of every trace, and remove traces that have no data left."""
        policy = self._policy
        limits = (policy.events, policy.planner_events, policy.max_events, policy.max_planner_events)
        if any(limit is not None for limit in limits):
            await self._each(TRACES, self._trace)

    async def _trace(self, noted: Record) -> None:
        await self._trim("events", EVENTS, noted.key, bundles=True)
        await self._trim("planner_events", PLANNER_EVENTS, noted.key, bundles=True)
        if not self._dry and self._unused(noted) and await forget_trace(self._scope, noted):
            self.swept.traces += 1

    # ----------------------------------------------------------------------------------------------------- sessions

    async def sessions(self) -> None:
        """Sweep every session."""
        await self._each(SESSIONS, self._session)

    async def _session(self, noted: Record) -> None:
        policy, ref = self._policy, noted.key
        if policy.sessions is not None and self._unused(noted, policy.sessions):
            unused = Query(ARTIFACTS, {"session": ref}, order="rank", until=self._before(policy.sessions))
            await self._remove_artifacts(unused, Version(SESSIONS, ref, noted.version))
            if self._dry or await forget_session(self._scope, noted):
                self.swept.sessions += 1
                return
        await self._trim("updates", UPDATES, ref, bundles=False)
        await self._trim("steering", STEERING, ref, bundles=False)
        if policy.tasks is not None:
            with contextlib.suppress(LogTrimmed):  # another process trimmed the order of tasks meanwhile
                await self._tasks(ref, self._before(policy.tasks))
        if policy.max_trajectories is not None:
            query = Query(TRAJECTORIES, {"session": ref}, order="saved")
            self.swept.trajectories += await self._oldest(query, policy.max_trajectories)
        if policy.artifacts is not None:
            await self._remove_artifacts(
                Query(ARTIFACTS, {"session": ref}, order="rank", until=self._before(policy.artifacts))
            )
        if policy.max_artifacts is not None:
            await self._remove_artifacts(
                Query(ARTIFACTS, {"session": ref}, order="rank", until=NEVER), keep=policy.max_artifacts
            )

    async def _tasks(self, ref: str, before: int) -> None:
        """Remove tasks that ended before this time, with their contexts; then trim the order of tasks."""
        left: set[str] = set()
        came = await self._scope.log_state(TASK_ORDER, ref)  # read first, so that later tasks keep their place
        async for record in self._scope.scan(Query(TASKS, {"session": ref})):
            task = decode(record.body)
            if task["status"] in _OVER and _moment(task.get("updated_at")) < before:
                gone = (Delete(TASKS, record.key, version=record.version), Delete(SNAPSHOTS, record.key))
                if await self._commit(*gone):
                    self.swept.tasks += 1
                    continue
            left.add(record.key.rpartition("/")[2])
        if self._dry:
            return
        through = came.floor
        while through < came.head:
            page = await self._scope.read_log(TASK_ORDER, ref, after=through, before=came.head + 1, limit=PAGE)
            if not page.entries:  # the session was erased meanwhile
                return
            kept = [entry.seq for entry in page.entries if entry.data.decode() in left]
            through = kept[0] - 1 if kept else page.entries[-1].seq
            if kept:
                break
        if through > came.floor:
            await self._scope.commit(Trim(TASK_ORDER, ref, through))

    # ------------------------------------------------------------------------------------------------------ records

    async def records(self) -> None:
        """Remove records that are found by age alone."""
        policy = self._policy
        for name, collection in (("trajectories", TRAJECTORIES), ("bindings", BINDINGS), ("memory", MEMORY)):
            age: float | None = getattr(policy, name)
            if age is None:
                continue
            async for record in self._scope.scan(Query(collection, order="saved", until=self._before(age))):
                if collection == MEMORY and decode(record.body)["key"].startswith(_KV):
                    continue
                if await self._commit(Delete(collection, record.key, version=record.version)):
                    setattr(self.swept, name, getattr(self.swept, name) + 1)
        if policy.artifacts is not None:  # artifacts without a session
            before = self._before(policy.artifacts)
            await self._remove_artifacts(
                Query(ARTIFACTS, {"session_group": Owner().session}, order="rank", until=before)
            )
        while not self._dry and (gone := await self._shelf.sweep()):
            self.swept.artifacts += gone

    async def _remove_artifacts(self, query: Query, *checks: Version, keep: int = 0) -> None:
        """Remove the first artifacts of the query, except the last ``keep``, while the checks hold."""
        extra = (await self._scope.count(query, cap=1_000_000)).value - keep if keep else None
        async for record in self._scope.scan(query):
            if extra is not None:
                if extra <= 0:
                    return
                extra -= 1
            if self._dry or await self._shelf.delete(ArtifactRecord.of(record).id, *checks):
                self.swept.artifacts += 1

    async def _oldest(self, query: Query, keep: int) -> int:
        """Remove the first records of the query, except the last ``keep``, and return their number."""
        extra, gone = (await self._scope.count(query, cap=1_000_000)).value - keep, 0
        if extra <= 0:
            return 0
        async for record in self._scope.scan(query):
            if extra <= 0:
                break
            extra -= 1
            gone += await self._commit(Delete(query.collection, record.key, version=record.version))
        return gone

    # ------------------------------------------------------------------------------------------------------ internal

    async def _trim(self, name: str, log: str, stream: str, *, bundles: bool) -> None:
        age: float | None = getattr(self._policy, name)
        keep: int | None = getattr(self._policy, f"max_{name}")
        if age is None and keep is None:
            return
        before = None if age is None else self._before(age)
        try:
            gone = await trim(self._scope, log, stream, before=before, keep=keep, bundles=bundles, dry=self._dry)
        except LogTrimmed:  # another process trimmed it meanwhile
            return
        setattr(self.swept, name, getattr(self.swept, name) + gone)

    async def _each(self, collection: str, visit: Callable[[Record], Awaitable[None]]) -> None:
        """Visit each record, the longest unused first, starting where an interrupted sweep stopped."""
        kept = await self._scope.get(SWEEPS, collection)
        since = decode(kept.body) if kept is not None and not self._dry else None
        query = Query(collection, order="seen", since=since)
        cursor: str | None = None
        while True:
            page = await self._scope.find(query, limit=PAGE, cursor=cursor)
            for record in page.records:
                await visit(record)
            cursor = page.cursor
            if cursor is None:
                break
            if not self._dry:
                await self._scope.commit(Put(SWEEPS, collection, encode(_seen(page.records[-1]))))
        if not self._dry:
            await self._scope.commit(Delete(SWEEPS, collection))

    async def _commit(self, *operations: Delete) -> bool:
        try:
            if not self._dry:
                await self._scope.commit(*operations)
        except CommitRefused:  # saved meanwhile: it stays
            return False
        return True

    def _before(self, age: float) -> int:
        return self._now - int(age * 1_000_000)

    def _unused(self, noted: Record, seconds: float = 0.0) -> bool:
        """Return whether no process has used it for this time."""
        return _seen(noted) < self._before(seconds + NOTED_SECONDS)


def _seen(noted: Record) -> int:
    seen = noted.fields.get("seen")
    return seen if isinstance(seen, int) else 0


def _moment(value: Any) -> int:
    """Return microseconds since 1970; a time without zone is UTC."""
    if not isinstance(value, datetime):
        return 0
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000)


# ----------------------------------------------------------------------------------------------------------------- logs


LOG_PAGE = 500


async def trim(
    scope: Scope, log: str, stream: str, *, before: int | None, keep: int | None, bundles: bool, dry: bool
) -> int:
    """Trim entries from before this time (microseconds since 1970), and all but the last ``keep`` items.

    ``bundles``: an entry may hold several items. Return the number of trimmed entries; ``dry`` only counts.
    """
    state = await scope.log_state(log, stream)
    through = state.floor
    if before is not None and state.head > state.floor:
        through = await _last_before(scope, log, stream, before, state.floor, state.head)
    if keep is not None and state.head - through > 0:
        last = await _before_last(scope, log, stream, keep) if bundles else state.head - keep
        through = max(through, last)
    if through <= state.floor:
        return 0
    if not dry:
        await scope.commit(Trim(log, stream, through))
    return through - state.floor


async def _last_before(scope: Scope, log: str, stream: str, moment: int, floor: int, head: int) -> int:
    """Return the seq of the last entry before this time, or the floor."""
    oldest, newest = floor, head
    while oldest < newest:
        middle = (oldest + newest + 1) // 2
        page = await scope.read_log(log, stream, before=middle + 1, limit=1, max_bytes=1, backward=True)
        if page.entries and page.entries[0].at < moment:
            oldest = middle
        else:
            newest = middle - 1
    return oldest


async def _before_last(scope: Scope, log: str, stream: str, keep: int) -> int:
    """Return the seq before the entry that holds the first of the last ``keep`` items."""
    found, before = 0, None
    while True:
        page = await scope.read_log(log, stream, before=before, limit=LOG_PAGE, backward=True)
        for entry in page.entries:
            if found >= keep:
                return entry.seq
            found += len(items_of(entry))
        if not page.entries or page.entries[-1].seq <= page.floor + 1:
            return page.floor
        before = page.entries[-1].seq


# ------------------------------------------------------------------------------------------------------ periodic sweeps


SWEEP_SECONDS = 3600.0
FIRST_SECONDS = 60.0  # after the creation of the store, so that short programs do not sweep


class StateSweeper:
    """Decides when a sweep is due, and runs it. One process sweeps a tenant in each period."""

    def __init__(
        self,
        partition: str,
        retention: StateRetention | None,
        every: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if every is not None and (isinstance(every, bool) or not isinstance(every, int | float) or not every > 0):
            raise InvalidState(f"sweep_every must be a number of seconds, or None for no sweeps, not {every!r}")
        self._partition = partition
        self._retention = retention or StateRetention()
        self._every = every
        self._clock = clock
        self._due = None if every is None else clock() + min(every, FIRST_SECONDS)

    def due(self) -> bool:
        """Return whether a sweep is due; if so, start the next period."""
        if self._due is None or self._every is None or self._clock() < self._due:
            return False
        self._due = self._clock() + self._every
        return True

    async def sweep(self, kernel: Kernel) -> Removed | None:
        """Sweep, unless another process has done so in this period. Errors are logged; the next period retries."""
        assert self._every is not None

        async def sweep_tenant(kernel: Kernel) -> Removed:
            swept = asdict(await sweep_state(kernel.scoped(self._partition), self._retention))
            return {what: count for what, count in swept.items() if count}

        try:
            await sweep_in_turn(kernel, "expired", sweep_expired, every=self._every / 2)
            return await sweep_in_turn(kernel, self._partition, sweep_tenant, every=self._every / 2)
        except Exception as error:  # noqa: BLE001  (no caller awaits it)
            logger.warning("statestore_sweep_failed: %r", error)
            return None
