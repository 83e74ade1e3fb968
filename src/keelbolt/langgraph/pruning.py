"""Deletes, copies and prunes threads, and removes values that no checkpoint needs any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from keelbolt.errors import CommitRefused, StorageBusy
from keelbolt.kernel import Absent, Attach, Delete, Detach, Operation, Patch, Put, Query, Record, Replace, Scope
from keelbolt.langgraph.checkpoints import ATTEMPTS, Checkpoints
from keelbolt.langgraph.families import CHECKPOINTS, HEADS, VALUES, WRITES
from keelbolt.langgraph.records import (
    FORMAT,
    Lane,
    StoredCheckpoint,
    StoredHead,
    StoredWrites,
    decode,
    encode,
    value_key,
)
from keelbolt.state.names import name

BATCH = 200  # deletions per commit


async def delete_thread(scope: Scope, thread: str) -> None:
    """Delete a thread; its heads first, so that readers no longer find it.

    A run that starts meanwhile creates a new head. Its checkpoints are deleted as a whole, too, or not at all.
    """
    for _ in range(ATTEMPTS):
        await _delete_all(scope, _of_thread(scope, HEADS, thread))
        try:
            await _delete_all(scope, _of_thread(scope, CHECKPOINTS, thread), headless=True)
            await _delete_all(scope, _of_thread(scope, WRITES, thread), headless=True)
        except CommitRefused:
            continue
        await collect(scope, thread)
        return
    raise StorageBusy


async def delete_runs(scope: Scope, checkpoints: Checkpoints, runs: Iterable[str]) -> None:
    """Delete the checkpoints of these runs and their writes. The newest remaining checkpoint becomes the head."""
    found: dict[Lane, set[str]] = {}
    for run in runs:
        async for record in scope.scan(Query(CHECKPOINTS, equal={"run": run})):
            stored = decode(StoredCheckpoint, record.body)
            found.setdefault(stored.lane, set()).add(stored.id)
    for lane, ids in found.items():
        await _behead(scope, checkpoints, lane, ids)
        await _delete_checkpoints(scope, lane, ids)
    for thread in {lane.thread for lane in found}:
        await collect(scope, thread)


async def prune(scope: Scope, checkpoints: Checkpoints, thread: str) -> None:
    """Keep the head of each namespace and the ancestors that its delta channels need."""
    heads = [record async for record in _of_thread(scope, HEADS, thread)]
    for head in heads:
        lane = Lane(thread, decode(StoredHead, head.body).namespace)
        keep = {str(head.fields["head"])}
        found = await scope.get(CHECKPOINTS, lane.checkpoint(str(head.fields["head"])))
        if found is not None:
            needed = await checkpoints.needed_ancestors(scope, decode(StoredCheckpoint, found.body))
            keep.update(stored.id for stored in needed)
        query = Query(CHECKPOINTS, equal={"lane": lane.key}, order="id")
        doomed = {str(record.fields["id"]) async for record in scope.scan(query)} - keep
        # If a run has moved the head meanwhile, these may include checkpoints that it saved.
        current = await scope.get(HEADS, lane.key)
        if current is not None and current.version == head.version:
            await _delete_checkpoints(scope, lane, doomed)
    await collect(scope, thread)


async def copy_thread(scope: Scope, source: str, target: str) -> None:
    """Copy all checkpoints, writes and values; the heads last, so that readers see only a complete copy."""
    async for record in _of_thread(scope, VALUES, source):
        key = value_key(target, record.key.rpartition("/")[2])
        fields = {**record.fields, "thread": name(target), "dying": None}
        operations: list[Operation] = [Put(VALUES, key, record.body, fields)]
        if isinstance(blob := record.fields.get("blob"), str):
            operations.append(Attach(blob, f"{VALUES}/{key}"))
        await scope.commit(*operations)
    async for records in _batches(_of_thread(scope, WRITES, source)):
        copies: list[Operation] = []
        for record in records:
            writes = decode(StoredWrites, record.body)
            lane = Lane(target, writes.namespace)
            fields = {"thread": name(target), "checkpoint": lane.checkpoint(writes.checkpoint)}
            copies.append(Put(WRITES, lane.task(writes.checkpoint, writes.task), record.body, fields))
        await asyncio.gather(*[scope.commit(copy) for copy in copies])  # the kernel groups them
    async for records in _batches(_of_thread(scope, CHECKPOINTS, source)):
        copies = []
        for record in records:
            stored = decode(StoredCheckpoint, record.body)
            lane = Lane(target, stored.namespace)
            body = encode(msgspec.structs.replace(stored, thread=target))
            fields = {**record.fields, "thread": name(target), "lane": lane.key}
            copies.append(Put(CHECKPOINTS, lane.checkpoint(stored.id), body, fields))
        await asyncio.gather(*[scope.commit(copy) for copy in copies])
    async for record in _of_thread(scope, HEADS, source):
        namespace = decode(StoredHead, record.body).namespace
        body = encode(StoredHead(FORMAT, target, namespace))
        fields = {**record.fields, "thread": name(target)}
        await scope.commit(Put(HEADS, Lane(target, namespace).key, body, fields))


async def collect(scope: Scope, thread: str) -> None:
    """Remove the values that no checkpoint and no write of this thread uses.

    A value is marked, its use is checked again, and then it is removed. A commit that needs a marked value writes it
    again, which changes its version, so that it is not removed.
    """
    needed = await _needed(scope, thread)
    marked: dict[str, tuple[int, str | None]] = {}  # key → its version after the mark, its blob
    async for records in _batches(_of_thread(scope, VALUES, thread)):
        unused = [record for record in records if record.key not in needed]
        marks = [Patch(VALUES, record.key, {"dying": True}, version=record.version) for record in unused]
        await asyncio.gather(*[_try(scope, mark) for mark in marks])
        for record in unused:
            found = record.fields.get("blob")
            marked[record.key] = record.version + 1, found if isinstance(found, str) else None
    if not marked:
        return
    needed = await _needed(scope, thread)
    doomed: list[list[Operation]] = []
    for key, (version, blob) in marked.items():
        if key not in needed:
            detach = [Detach(blob, f"{VALUES}/{key}")] if blob is not None else []
            doomed.append([Delete(VALUES, key, version=version), *detach])
    for start in range(0, len(doomed), BATCH):
        await asyncio.gather(*[_try(scope, *operations) for operations in doomed[start : start + BATCH]])


async def _try(scope: Scope, *operations: Operation) -> None:
    try:
        await scope.commit(*operations)
    except CommitRefused:
        return  # the value was written again


async def _needed(scope: Scope, thread: str) -> set[str]:
    needed: set[str] = set()
    async for record in _of_thread(scope, CHECKPOINTS, thread):
        needed |= decode(StoredCheckpoint, record.body).digests()
    async for record in _of_thread(scope, WRITES, thread):
        needed |= decode(StoredWrites, record.body).digests()
    return {value_key(thread, digest) for digest in needed}


async def _behead(scope: Scope, checkpoints: Checkpoints, lane: Lane, ids: set[str]) -> None:
    """Make the newest checkpoint that is not among these the head of the lane."""
    for _ in range(ATTEMPTS):
        head = await scope.get(HEADS, lane.key)
        if head is None or head.fields["head"] not in ids:
            return
        left: str | None = None
        query = Query(CHECKPOINTS, equal={"lane": lane.key}, order="id", newest_first=True)
        async for record in scope.scan(query):
            if record.fields["id"] not in ids:
                left = str(record.fields["id"])
                break
        change: Operation = Delete(HEADS, lane.key, version=head.version)
        if left is not None:
            change = Replace(HEADS, lane.key, head.version, head.body, {**head.fields, "head": left})
        try:
            await scope.commit(change)
        except CommitRefused:
            continue
        checkpoints.forget()
        return


async def _delete_checkpoints(scope: Scope, lane: Lane, ids: Iterable[str]) -> None:
    doomed: list[Operation] = []
    for checkpoint in ids:
        key = lane.checkpoint(checkpoint)
        doomed.append(Delete(CHECKPOINTS, key))
        found = scope.scan(Query(WRITES, equal={"checkpoint": key}))
        doomed.extend([Delete(WRITES, record.key) async for record in found])
    await _commit(scope, doomed)


async def _delete_all(scope: Scope, records: AsyncIterator[Record], *, headless: bool = False) -> None:
    """Delete records in batches. Raise CommitRefused if ``headless`` and a lane of the records has a head."""
    doomed: dict[str, Operation] = {}
    lanes: dict[str, Operation] = {}
    async for record in records:
        doomed[record.key] = Delete(record.collection, record.key)
        if headless:
            lane = record.key.rsplit("/", 2 if record.collection == WRITES else 1)[0]
            lanes[lane] = Absent(HEADS, lane)
        if len(doomed) >= BATCH:
            await scope.commit(*lanes.values(), *doomed.values())
            doomed, lanes = {}, {}
    if doomed:
        await scope.commit(*lanes.values(), *doomed.values())


async def _commit(scope: Scope, operations: Sequence[Operation]) -> None:
    for start in range(0, len(operations), BATCH):
        await scope.commit(*operations[start : start + BATCH])


async def _of_thread(scope: Scope, collection: str, thread: str) -> AsyncIterator[Record]:
    order = "id" if collection == CHECKPOINTS else None
    async for record in scope.scan(Query(collection, equal={"thread": name(thread)}, order=order)):
        yield record


async def _batches(records: AsyncIterator[Record]) -> AsyncIterator[list[Record]]:
    batch: list[Record] = []
    async for record in records:
        batch.append(record)
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
