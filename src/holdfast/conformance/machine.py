"""Random histories on an engine, compared with the model step by step. Needs Hypothesis.

    check_histories(subject, steps=1000)

Commits that are called together, without awaiting, must end as if they had been made one after another in the order of
the calls; a reader beside them must see the state after some of them, and never go back.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from holdfast.conformance.expect import ANY, broken, equal, expect
from holdfast.conformance.model import Key, Model, Stream
from holdfast.conformance.subject import Subject, subject_of
from holdfast.errors import BlobNotFound, CommitRefused, LogTrimmed, WrittenTwice
from holdfast.storage.blobs import Attach, Detach
from holdfast.storage.commits import Operation, Receipt, address
from holdfast.storage.contract import Kernel
from holdfast.storage.logs import Append, Draft, Drop, Head, LogState, Trim
from holdfast.storage.records import (
    Absent,
    Count,
    Delete,
    FieldIn,
    FieldNotIn,
    Insert,
    Patch,
    Put,
    Query,
    Record,
    Replace,
    Take,
    Version,
)
from holdfast.storage.work import Bury, Complete, Enqueue, Fence, Release, Remove, Requeue, Retry, WorkState

T = TypeVar("T")

PARTITIONS = ("p", "q")
COLLECTIONS = ("things", "counted")
KEYS = ("a", "b", "c", "d")
STREAMS = ("s", "t")
QUEUES = ("runs", "calls")
WORKERS = ("w1", "w2", "w3")
LANES = ("", "l")
DATA = (b"one blob", b"another blob")
DIGESTS = (*(hashlib.sha256(data).hexdigest() for data in DATA), "0" * 64)
LATER_SECONDS = 3600.0
RIGHT, WRONG = -1, -2  # versions, seqs and fences that are resolved when the commit is made

CHECKS = (Version, Absent, FieldIn, FieldNotIn, Head, Fence)


# ------------------------------------------------------------------------------------------------------- strategies

_collections = st.sampled_from(COLLECTIONS)
_keys = st.sampled_from(KEYS)
_bodies = st.sampled_from((b"", b"1", b"\0{}", b"x" * 1000))
_fields = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(("new", "done", None)),
        "owner": st.sampled_from(("me", None)),
        "rank": st.sampled_from((-1, 0, 1, 2, None)),
    },
)
_mostly = st.sampled_from((True, True, True, False))
_guess = st.sampled_from((RIGHT, RIGHT, RIGHT, WRONG))
_perhaps = st.sampled_from((None, None, RIGHT, WRONG))
_streams = st.sampled_from(STREAMS)
_drafts = st.builds(
    Draft,
    st.just("note"),
    st.sampled_from((b"", b"x", b"y" * 300)),
    st.sampled_from((None, None, None, "d1", "d2", "d3")),
)
_queues = st.sampled_from(QUEUES)
_items = st.sampled_from(KEYS[:3])
_ready_in = st.sampled_from((0.0, 0.0, 0.0, LATER_SECONDS))
_digests = st.sampled_from(DIGESTS)
_holders = st.sampled_from(("h1", "h2"))
_states = st.lists(st.sampled_from(("new", "done", None)), max_size=2).map(tuple)

_records = st.one_of(
    *(st.builds(Put, _collections, _keys, _bodies, _fields) for _ in range(3)),
    st.builds(Insert, _collections, _keys, _bodies, _fields),
    st.builds(Replace, _collections, _keys, _guess, _bodies, _fields),
    st.builds(Patch, _collections, _keys, _fields, _perhaps),
    st.builds(Delete, _collections, _keys, _perhaps),
    st.builds(Take, _collections, _keys),
    st.builds(Version, _collections, _keys, _guess),
    st.builds(Absent, _collections, _keys),
    st.builds(FieldIn, _collections, _keys, st.just("state"), _states),
    st.builds(FieldNotIn, _collections, _keys, st.just("state"), _states),
)
# Hypothesis chooses evenly among different strategies, so what shall come often is made several times.
_logs = st.one_of(
    *(
        st.builds(Append, st.just("log"), _streams, st.lists(_drafts, min_size=1, max_size=3).map(tuple))
        for _ in range(5)
    ),
    st.builds(Trim, st.just("log"), _streams, st.integers(0, 8)),
    st.builds(Drop, st.just("log"), _streams),
    st.builds(Head, st.just("log"), _streams, _guess),
)
_priorities = st.sampled_from((0, 0, 5, -5))
_attempts = st.sampled_from((1, 2, 5))
_claimers = st.sampled_from((None, None, None, *WORKERS))
_lanes = st.sampled_from(LANES)
_enqueues = st.builds(Enqueue, _queues, _items, _ready_in, _lanes, _priorities, _attempts, _claimers)
_works = st.one_of(
    _enqueues,
    *(st.builds(Enqueue, _queues, _items, _ready_in, _lanes, _priorities, _attempts, _claimers) for _ in range(2)),
    st.builds(Complete, _queues, _items, _guess),
    st.builds(Release, _queues, _items, _guess, _ready_in),
    st.builds(Retry, _queues, _items, _guess, st.just("why"), _ready_in),
    st.builds(Bury, _queues, _items, _guess, st.just("end")),
    st.builds(Requeue, _queues, _items, _ready_in),
    st.builds(Remove, _queues, _items),
    st.builds(Fence, _queues, _items, _guess),
)
_blobs = st.one_of(st.builds(Attach, _digests, _holders), st.builds(Detach, _digests, _holders))
_operations = st.one_of(_records, _logs, _works, _blobs)
_commits = st.tuples(st.sampled_from(PARTITIONS), st.lists(_operations, min_size=1, max_size=4).map(tuple))
_queries = st.one_of(
    st.builds(lambda newest: Query("things", newest_first=newest), st.booleans()),
    st.builds(lambda s, newest: Query("things", {"state": s}, newest_first=newest), st.just("new"), st.booleans()),
    st.builds(
        lambda since, until, newest: Query("things", {}, "rank", since, until, newest),
        st.sampled_from((None, None, -1, 0, 1)),
        st.sampled_from((None, None, 0, 1, 2)),
        st.booleans(),
    ),
    st.builds(lambda newest: Query("counted", {"state": "new"}, "rank", newest_first=newest), st.booleans()),
    st.builds(lambda owner: Query("counted", {"owner": owner}), st.sampled_from(("me", None))),
)


# ----------------------------------------------------------------------------------------------------------- machine


class StorageMachine(RuleBasedStateMachine):
    """Rules for one subject; ``steps`` counts the rules that all machines of a class have made."""

    subject: ClassVar[Subject]
    steps: ClassVar[int] = 0
    kernel: Kernel

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.place = self.run(self.stack.enter_async_context(self.subject.place()), step=False)
        self.opened = AsyncExitStack()
        self.sound = 0
        self.run(self.open(), step=False)

    def run(self, work: Coroutine[Any, Any, T], *, step: bool = True) -> T:
        if step:
            self.model.step += 1
        return self.loop.run_until_complete(asyncio.wait_for(work, 30.0))

    async def open(self) -> None:
        self.kernel = await self.opened.enter_async_context(self.place.open())

    @invariant()
    def went_well(self) -> None:
        type(self).steps += 1
        self.sound = self.model.step

    def teardown(self) -> None:
        try:
            if self.sound == self.model.step:  # otherwise a step has failed already
                self.run(self.compare_everything(), step=False)
        finally:
            self.run(self.opened.aclose(), step=False)
            self.run(self.stack.aclose(), step=False)
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    # ----------------------------------------------------------------------------------------------------- commits

    def resolve(self, partition: str, operation: Operation, *, steered: bool) -> Operation:
        """Put real versions, seqs and fences where RIGHT and WRONG stand, and only living workers.

        Steered, an operation that would be refused becomes one that is not: most histories shall get somewhere.
        """
        if steered:
            operation = self._steer(partition, operation)
        match operation:
            case Version() | Replace() | Patch() | Delete() if operation.version is not None:
                record = self.model.records.get((partition, operation.collection, operation.key))
                version = record.version if record else 1
                return replace(operation, version=version if operation.version == RIGHT else version + 1)
            case Head():
                head = self.model.streams.get((partition, operation.log, operation.stream), Stream()).head
                return replace(operation, seq=head if operation.seq == RIGHT else head + 1)
            case Fence() | Complete() | Release() | Retry() | Bury():
                fence = self.model.fences[partition, operation.queue, operation.key]
                return replace(operation, fence=max(fence if operation.fence == RIGHT else fence - 1, 1))
            case Enqueue(worker=str(worker)) if worker in self.model.expired:
                return replace(operation, worker=None)
            case _:
                return operation

    def _steer(self, partition: str, operation: Operation) -> Operation:
        match operation:
            case Insert() | Replace() | Patch() | Delete() | Take() | Version() | Absent() | FieldIn() | FieldNotIn():
                record = self.model.records.get((partition, operation.collection, operation.key))
                if record is None and not isinstance(operation, Absent):
                    return Insert(operation.collection, operation.key, b"", getattr(operation, "fields", {}))
                if isinstance(operation, Insert):
                    return Put(operation.collection, operation.key, operation.body, operation.fields)
                if isinstance(operation, FieldIn | FieldNotIn | Absent):
                    return Version(operation.collection, operation.key, RIGHT)
                return operation if isinstance(operation, Take) else replace(operation, version=RIGHT)
            case Head():
                return replace(operation, seq=RIGHT)
            case Fence() | Complete() | Release() | Retry() | Bury():
                item = self.model.items.get((partition, operation.queue, operation.key))
                if item is None or item.state != "held":
                    return Enqueue(operation.queue, operation.key, worker="w1")
                return replace(operation, fence=RIGHT)
            case Enqueue() | Requeue():
                item = self.model.items.get((partition, operation.queue, operation.key))
                if isinstance(operation, Requeue) and (item is None or item.state != "dead"):
                    return Enqueue(operation.queue, operation.key)
                if isinstance(operation, Enqueue) and item is not None and item.state == "held":
                    return replace(operation, worker=None)
                return operation
            case Attach() if (partition, operation.digest) not in self.model.blobs:
                return Detach(operation.digest, operation.holder)
            case _:
                return operation

    def commit(self, partition: str, operations: tuple[Operation, ...]) -> Awaitable[Receipt]:
        """Call the commit now; a call that is wrong in itself may raise at once or when it is awaited."""
        try:
            return self.kernel.commit(partition, *operations)
        except WrittenTwice as error:
            future: asyncio.Future[Receipt] = self.loop.create_future()
            future.set_exception(error)
            return future

    def judge(self, partition: str, operations: tuple[Operation, ...], end: Receipt | BaseException) -> None:
        if written_twice(operations):
            expect(isinstance(end, WrittenTwice), f"{operations} write a key twice, but ended with {end!r}")
            return
        failures = self.model.failures(partition, operations)
        if isinstance(end, CommitRefused):
            number = next((n for n, operation in enumerate(operations) if _same(operation, end.check)), -1)
            told = (number, end.reason, end.found)
            right = any(told == failure or (told[:2] == failure[:2] and failure[2] is ANY) for failure in failures)
            expect(right, f"{operations} were refused with {told}, but the failing checks are {failures}")
        elif isinstance(end, Receipt):
            expect(not failures, f"{operations} were committed, but {failures} fail")
            self.model.commit(partition, operations, end.outcomes)
        else:
            broken(f"{operations} ended with {end!r}")

    @initialize()
    def begin(self) -> None:
        self.run(self._begin())

    async def _begin(self) -> None:
        for worker in WORKERS:
            await self.kernel.heartbeat(worker, lease_seconds=LATER_SECONDS)

    @rule(commit=_commits, steered=_mostly)
    def one_commit(self, commit: tuple[str, tuple[Operation, ...]], *, steered: bool) -> None:
        self._one_commit(*commit, steered=steered)

    @rule(partition=st.sampled_from(PARTITIONS), operations=st.lists(_works, min_size=1, max_size=3), steered=_mostly)
    def work_commit(self, partition: str, operations: list[Operation], *, steered: bool) -> None:
        self._one_commit(partition, tuple(operations), steered=steered)

    def _one_commit(self, partition: str, operations: tuple[Operation, ...], *, steered: bool) -> None:
        resolved = tuple(self.resolve(partition, operation, steered=steered) for operation in operations)

        async def work() -> Receipt | BaseException:
            (end,) = await asyncio.gather(self.commit(partition, resolved), return_exceptions=True)
            return end

        self.judge(partition, resolved, self.run(work()))

    @rule(commits=st.lists(_commits, min_size=2, max_size=6), awaited=st.booleans(), steered=_mostly)
    def commits_at_once(
        self, commits: list[tuple[str, tuple[Operation, ...]]], *, awaited: bool, steered: bool
    ) -> None:
        """Called in one go: they end as if made one after another, and a reader sees one of the states between."""
        resolved = [(p, tuple(self.resolve(p, each, steered=steered) for each in some)) for p, some in commits]
        seen: list[tuple[Record | None, ...]] = []

        async def read() -> None:
            for _ in range(2):
                found = await self.kernel.get_many("p", "things", KEYS)
                seen.append(tuple(found))

        async def work() -> list[Receipt | BaseException]:
            waiting = [self.commit(p, operations) for p, operations in resolved]
            if not awaited:
                await self.kernel.flush()
            ends, _ = await asyncio.gather(asyncio.gather(*waiting, return_exceptions=True), read())
            return ends

        ends = self.run(work())
        states = [self._things()]
        for (partition, operations), end in zip(resolved, ends, strict=True):
            self.judge(partition, operations, end)
            states.append(self._things())
        first = next((n for n, state in enumerate(states) if state == seen[0]), None)
        expect(first is not None, f"a reader saw {seen[0]}, which is none of the states {states}")
        later = states[first:]
        expect(seen[1] in later, f"a reader saw {seen[1]} after {seen[0]}, but the states from then on are {later}")

    def _things(self) -> tuple[Record | None, ...]:
        return tuple(self.model.records.get(("p", "things", key)) for key in KEYS)

    @rule(key=_keys, rank=st.integers(-2, 2))
    def fleeting_record(self, key: str, rank: int) -> None:
        """A record that expires at once is written, and is gone."""

        async def work() -> None:
            before = await self.kernel.get("p", "passing", key)
            expect(before is None, f"an expired record is still there: {before}")
            receipt = await self.kernel.commit("p", Insert("passing", key, b"", {"rank": rank}, expires_in=0.002))
            equal(receipt.version("passing", key), 1, "the version of a record whose predecessor expired")
            await asyncio.sleep(0.004)
            equal((await self.kernel.find("p", Query("passing", order="rank"))).records, (), "what is left")

        self.run(work())

    @rule(key=_keys, stream=_streams, rank=st.integers(-2, 2))
    def behind(self, key: str, stream: str, rank: int) -> None:
        """What is written behind is there for the next read."""
        operations = (Put("behind", key, b"", {"rank": rank}), Append("behind.log", stream, (Draft("note", b"x"),)))

        async def work() -> tuple[Record | None, LogState]:
            self.kernel.commit_later("p", *operations)
            record = await self.kernel.get("p", "behind", key)
            return record, await self.kernel.log_state("p", "behind.log", stream)

        record, state = self.run(work())
        version = self.model._put("p", "behind", key, b"", {"rank": rank})  # noqa: SLF001
        (seq,) = self.model._append(("p", "behind.log", stream), operations[1])  # noqa: SLF001
        equal(record.version if record else 0, version, "the version written behind")
        equal(state, LogState(seq, 0), "the stream written behind")

    # -------------------------------------------------------------------------------------------------------- work

    @rule(
        queue=_queues,
        worker=st.sampled_from(WORKERS),
        limit=st.integers(1, 6),
        new=st.lists(st.tuples(st.sampled_from(PARTITIONS), _enqueues), max_size=4),
        dies=st.booleans(),
    )
    def claim(self, queue: str, worker: str, limit: int, new: list[tuple[str, Enqueue]], *, dies: bool) -> None:
        """Some items come, some are claimed, and perhaps the worker dies with them."""
        for partition, enqueue in new:
            self._one_commit(partition, (replace(enqueue, queue=queue),), steered=True)
        self.model.claim(queue, worker, limit, self.run(self._claim(queue, worker, limit)))
        if dies:
            self.run(self._lease_ends(worker), step=False)
            self.model.expired.add(worker)

    async def _claim(self, queue: str, worker: str, limit: int) -> Any:
        return await self.kernel.claim(queue, worker, limit=limit, lease_seconds=LATER_SECONDS)

    @rule(queue=_queues)
    def claims_at_once(self, queue: str) -> None:
        """Three workers claim in one go: no item is handed out twice."""
        alive = [worker for worker in WORKERS if worker not in self.model.expired]

        async def work() -> list[Any]:
            return await asyncio.gather(*(self._claim(queue, worker, 2) for worker in alive))

        for worker, claims in zip(alive, self.run(work()), strict=True):
            for claim in claims:
                self.model.claimed((claim.partition, claim.queue, claim.key), worker, claim)

    @rule(worker=st.sampled_from(WORKERS), what=st.sampled_from(("lease ends", "heartbeat", "retire")))
    def worker(self, worker: str, what: str) -> None:
        if what == "lease ends":
            self.run(self._lease_ends(worker))
            self.model.expired.add(worker)
            return
        if what == "retire":
            released = self.run(self.kernel.retire(worker), step=False)
            equal(released, self.model.retire(worker), f"the number of items that {worker} held")
        self.run(self.kernel.heartbeat(worker, lease_seconds=LATER_SECONDS))
        self.model.expired.discard(worker)

    async def _lease_ends(self, worker: str) -> None:
        await self.kernel.heartbeat(worker, lease_seconds=0.001)
        await asyncio.sleep(0.003)

    # --------------------------------------------------------------------------------------------- blobs and lifecycle

    @rule(what=st.sampled_from(("stage", "sweep", "reopen")), partition=st.sampled_from(PARTITIONS))
    def keep(self, what: str, partition: str) -> None:
        if what == "sweep":
            equal(self.run(self.kernel.sweep()).blobs, 0, "the number of swept blobs")
        elif what == "reopen" and self.subject.persistent:
            self.run(self._reopen())
        else:
            for data in DATA:
                blob = self.run(self.kernel.stage_blob(partition, data), step=False)
                self.model.blobs.add((partition, blob.digest))

    async def _reopen(self) -> None:
        await self.opened.aclose()
        await self.open()

    # ------------------------------------------------------------------------------------------------------ reading

    @rule(partition=st.sampled_from(PARTITIONS), query=_queries, limit=st.integers(1, 4))
    def find(self, partition: str, query: Query, limit: int) -> None:
        self.run(self._find(partition, query, limit))

    async def _find(self, partition: str, query: Query, limit: int) -> None:
        wanted = self.model.find(partition, query)
        found: list[Record] = []
        cursor = None
        while True:
            page = await self.kernel.find(partition, query, limit=limit, cursor=cursor)
            found += page.records
            cursor = page.cursor
            if cursor is None:
                break
        equal(_by_key(found), _by_key(wanted), f"what {query} finds in {partition}")
        places = [_place(record, query) for record in found]
        equal(places, sorted(places, reverse=query.newest_first), f"the order of {query}")
        equal(await self.kernel.count(partition, query), Count(len(wanted), exact=True), f"the count of {query}")

    @rule(
        partition=st.sampled_from(PARTITIONS),
        stream=_streams,
        after=st.one_of(st.none(), st.integers(0, 12)),
        before=st.one_of(st.none(), st.integers(1, 12)),
        limit=st.integers(1, 5),
        backward=st.booleans(),
    )
    def read_log(
        self, partition: str, stream: str, after: int | None, before: int | None, limit: int, *, backward: bool
    ) -> None:
        known = self.model.streams.get((partition, "log", stream), Stream())

        async def work() -> Any:
            return await self.kernel.read_log(
                partition, "log", stream, after=after, before=before, limit=limit, backward=backward
            )

        try:
            page = self.run(work())
        except LogTrimmed as trimmed:
            expect(after is not None and after < known.floor, f"{trimmed} after {after}, but the stream is {known}")
            return
        expect(after is None or after >= known.floor, f"no LogTrimmed after {after} of {known}")
        seqs = [
            seq for seq in range(known.floor + 1, known.head + 1) if (after or 0) < seq < (before or known.head + 1)
        ]
        seqs = (seqs[::-1] if backward else seqs)[:limit]
        entries = [(seq, *known.entries[seq - known.floor - 1]) for seq in seqs]
        equal([(e.seq, e.kind, e.data) for e in page.entries], entries, f"the entries of {partition}/{stream}")
        equal((page.head, page.floor), (known.head, known.floor), f"head and floor of {partition}/{stream}")

    @rule()
    def compare(self) -> None:
        self.run(self.compare_everything())

    async def compare_everything(self) -> None:
        for partition in PARTITIONS:
            for collection in COLLECTIONS:
                found = await self.kernel.get_many(partition, collection, KEYS)
                wanted = [self.model.records.get((partition, collection, key)) for key in KEYS]
                equal(list(found), wanted, f"the records of {partition}/{collection}")
            for stream in STREAMS:
                known = self.model.streams.get((partition, "log", stream), Stream())
                state = await self.kernel.log_state(partition, "log", stream)
                equal(state, LogState(known.head, known.floor), f"head and floor of {partition}/{stream}")
            await self._compare_counters(partition)
            for digest in DIGESTS:
                await self._compare_blob(partition, digest)
            for queue in QUEUES:
                for state_ in ("waiting", "held", "dead"):
                    await self._compare_work(partition, queue, state_)

    async def _compare_counters(self, partition: str) -> None:
        groups: list[dict[str, Any]] = [{}, {"state": "new"}, {"state": None}, {"state": "done", "owner": "me"}]
        for equal_ in groups:
            wanted = len(self.model.find(partition, Query("counted", equal_)))
            found = await self.kernel.count(partition, Query("counted", equal_), cap=1)
            equal(found, Count(wanted, exact=True), f"the counter of {equal_} in {partition}")

    async def _compare_blob(self, partition: str, digest: str) -> None:
        try:
            await self.kernel.open_blob(partition, digest)
        except BlobNotFound:
            expect((partition, digest) not in self.model.blobs, f"the blob {digest} is gone")
        else:
            expect((partition, digest) in self.model.blobs, f"the blob {digest} of another partition is seen")

    async def _compare_work(self, partition: str, queue: str, state: WorkState) -> None:
        found = {}
        cursor = None
        while True:
            page = await self.kernel.list_work(partition, queue, state=state, limit=2, cursor=cursor)
            for item in page.items:
                fence = item.fence if state == "held" else 0
                reason = item.reason if state == "dead" else None
                numbers = (item.lane, item.priority, item.attempt, item.max_attempts)
                found[item.key] = (*numbers, item.holder, reason, fence)
                if state == "waiting":
                    key: Key = (partition, queue, item.key)
                    equal(item.ready_in <= 0, self.model.items[key].ready, f"whether {key} is ready")
            cursor = page.cursor
            if cursor is None:
                break
        wanted = {}
        for (p, q, name), item_ in self.model.items.items():
            if (p, q, item_.state) == (partition, queue, state):
                fence = self.model.fences[p, q, name] if state == "held" else 0
                numbers = (item_.lane, item_.priority, item_.attempt, item_.max_attempts)
                wanted[name] = (*numbers, item_.holder, item_.reason if state == "dead" else None, fence)
        equal(found, wanted, f"the {state} items of {partition}/{queue}")


def written_twice(operations: tuple[Operation, ...]) -> bool:
    written = [(_noun(operation), *address(operation)) for operation in operations if not isinstance(operation, CHECKS)]
    return len(set(written)) < len(written)


def _same(operation: Operation, check: object) -> bool:
    """Whether a refusal means this operation: engines may leave out fields that are None."""
    if type(operation) is not type(check) or address(operation) != address(check):
        return False
    return isinstance(operation, Insert | Put | Replace | Patch) or operation == check


def _noun(operation: Operation) -> str:
    nouns = ("collection", "log", "queue", "digest")
    return next(noun for noun in nouns if hasattr(operation, noun))


def _by_key(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.key)


def _place(record: Record, query: Query) -> tuple[bool, Any]:
    value = record.fields.get(query.order) if query.order else record.key
    return value is not None, value if value is not None else 0


# ------------------------------------------------------------------------------------------------------------ running


def machine_of(subject: Subject) -> type[StorageMachine]:
    """A machine class of its own, so that its steps are counted apart."""
    return type("StorageMachine", (StorageMachine,), {"subject": subject, "steps": 0})


def check_histories(
    given: Subject | Callable[..., Subject | Kernel], *, steps: int = 1000, length: int = 50, quiet: bool = False
) -> int:
    """Make at least ``steps`` random steps in histories of ``length``; answers how many were made."""
    machine = machine_of(subject_of(given))
    while machine.steps < steps:
        examples = -(-(steps - machine.steps) // length)
        chosen = settings(
            max_examples=max(examples, 1),
            stateful_step_count=length,
            deadline=None,
            database=None,
            print_blob=not quiet,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine, settings=chosen)
    return machine.steps
