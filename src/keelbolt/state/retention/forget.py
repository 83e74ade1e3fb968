"""Removes whole sessions and empty traces. Each commit checks that the session or trace was not used meanwhile."""

from __future__ import annotations

import asyncio

from keelbolt.errors import CommitRefused
from keelbolt.kernel import Delete, Drop, Head, Operation, Query, Record, Scope, Version
from keelbolt.state.families import (
    BINDINGS,
    CONTEXTS,
    CONTROLS,
    EVENTS,
    PATCHES,
    PLANNER_EVENTS,
    RUNS,
    SESSIONS,
    SNAPSHOTS,
    STEERING,
    TASK_ORDER,
    TASKS,
    TRACES,
    TRAJECTORIES,
    UPDATES,
)

PAGE = 100


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
            gone = (Delete(collection, record.key, version=record.version) for record in records)
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
