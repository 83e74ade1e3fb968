"""Compares all data of an engine with the model."""

from __future__ import annotations

from typing import Any

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.kernel.histories.chance import COLLECTIONS, DIGESTS, KEYS, PARTITIONS, QUEUES, STREAMS
from keelbolt.conformance.kernel.histories.model import EngineModel, Key, ModelStream
from keelbolt.errors import BlobNotFound
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.logs import LogState
from keelbolt.kernel.records import Count, Query, Record
from keelbolt.kernel.work import WorkState


async def compare_everything(kernel: Kernel, model: EngineModel) -> None:
    for partition in PARTITIONS:
        for collection in COLLECTIONS:
            found = await kernel.get_many(partition, collection, KEYS)
            wanted = [model.records.get((partition, collection, key)) for key in KEYS]
            equal(list(found), wanted, f"the records of {partition}/{collection}")
        for stream in STREAMS:
            known = model.streams.get((partition, "log", stream), ModelStream())
            state = await kernel.log_state(partition, "log", stream)
            equal(state, LogState(known.head, known.floor), f"head and floor of {partition}/{stream}")
        await _compare_counters(kernel, model, partition)
        for digest in DIGESTS:
            await _compare_blob(kernel, model, partition, digest)
        for queue in QUEUES:
            for state_ in ("waiting", "held", "dead"):
                await _compare_work(kernel, model, partition, queue, state_)


async def _compare_counters(kernel: Kernel, model: EngineModel, partition: str) -> None:
    groups: list[dict[str, Any]] = [{}, {"state": "new"}, {"state": None}, {"state": "done", "owner": "me"}]
    for equal_ in groups:
        wanted = len(model.find(partition, Query("counted", equal_)))
        found = await kernel.count(partition, Query("counted", equal_), cap=1)
        equal(found, Count(wanted, exact=True), f"the counter of {equal_} in {partition}")


async def _compare_blob(kernel: Kernel, model: EngineModel, partition: str, digest: str) -> None:
    try:
        await kernel.open_blob(partition, digest)
    except BlobNotFound:
        expect((partition, digest) not in model.blobs, f"the blob {digest} does not exist")
    else:
        expect((partition, digest) in model.blobs, f"the blob {digest} of another partition is visible")


async def _compare_work(kernel: Kernel, model: EngineModel, partition: str, queue: str, state: WorkState) -> None:
    found = {}
    cursor = None
    while True:
        page = await kernel.list_work(partition, queue, state=state, limit=2, cursor=cursor)
        for item in page.items:
            fence = item.fence if state == "held" else 0
            reason = item.reason if state == "dead" else None
            numbers = (item.lane, item.priority, item.attempt, item.max_attempts)
            found[item.key] = (*numbers, item.holder, reason, fence)
            if state == "waiting":
                key: Key = (partition, queue, item.key)
                equal(item.ready_in <= 0, model.items[key].ready, f"whether {key} is ready")
        cursor = page.cursor
        if cursor is None:
            break
    wanted = {}
    for (p, q, name), item_ in model.items.items():
        if (p, q, item_.state) == (partition, queue, state):
            fence = model.fences[p, q, name] if state == "held" else 0
            numbers = (item_.lane, item_.priority, item_.attempt, item_.max_attempts)
            wanted[name] = (*numbers, item_.holder, item_.reason if state == "dead" else None, fence)
    equal(found, wanted, f"the {state} items of {partition}/{queue}")


async def compare_found(kernel: Kernel, model: EngineModel, partition: str, query: Query, limit: int) -> None:
    wanted = model.find(partition, query)
    found: list[Record] = []
    cursor = None
    while True:
        page = await kernel.find(partition, query, limit=limit, cursor=cursor)
        found += page.records
        cursor = page.cursor
        if cursor is None:
            break
    equal(_by_key(found), _by_key(wanted), f"the records of {query} in {partition}")
    places = [_place(record, query) for record in found]
    equal(places, sorted(places, reverse=query.newest_first), f"the order of {query}")
    equal(await kernel.count(partition, query), Count(len(wanted), exact=True), f"the count of {query}")


def _by_key(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.key)


def _place(record: Record, query: Query) -> tuple[bool, Any]:
    value = record.fields.get(query.order) if query.order else record.key
    return value is not None, value if value is not None else 0
