"""Random histories on an engine, compared with the model step by step. Needs Hypothesis.

    check_histories(subject, steps=1000)

Commits that are called together, without awaiting, must end as if they had been made one after another in the order of
the calls; a reader beside them must see the state after some of them, and never go back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, ClassVar, TypeVar

from keelbolt.conformance.expect import broken, equal, expect
from keelbolt.conformance.kernel.histories.model import EngineModel, Key, ModelStream
from keelbolt.conformance.kernel.histories.random_operations import (
    COLLECTIONS,
    DATA,
    DIGESTS,
    KEYS,
    LATER_SECONDS,
    PARTITIONS,
    QUEUES,
    STREAMS,
    WORKERS,
    Chance,
    resolve,
    same,
    written_twice,
)
from keelbolt.conformance.kernel.subject import ANY, KernelPlace, KernelSubject
from keelbolt.conformance.suite import ConformanceSubject
from keelbolt.errors import BlobNotFound, CommitRefused, LogTrimmed, MissingExtra, WrittenTwice
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.logs import LogState
from keelbolt.kernel.records import (
    Count,
    Insert,
    Put,
    Query,
    Record,
)
from keelbolt.kernel.work import WorkState

try:
    from hypothesis import HealthCheck, Phase, note, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
except ModuleNotFoundError:
    raise MissingExtra("dev", "hypothesis") from None

T = TypeVar("T")


class StorageMachine(RuleBasedStateMachine):
    """Rules for one subject; ``steps`` counts the rules that all machines of a class have run."""

    subject: ClassVar[KernelSubject]
    steps: ClassVar[int] = 0
    kernel: Kernel

    def __init__(self) -> None:
        super().__init__()
        self.model = EngineModel()
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
                self.run(compare_everything(self.kernel, self.model), step=False)
        finally:
            self.run(self.opened.aclose(), step=False)
            self.run(self.stack.aclose(), step=False)
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    # ----------------------------------------------------------------------------------------------------- commits

    def commit(self, partition: str, operations: tuple[Operation, ...]) -> Awaitable[Receipt]:
        """Call the commit now; an invalid call may raise at once or when it is awaited."""
        try:
            return self.kernel.commit(partition, *operations)
        except WrittenTwice as error:
            future: asyncio.Future[Receipt] = self.loop.create_future()
            future.set_exception(error)
            return future

    def judge(self, partition: str, operations: tuple[Operation, ...], end: Receipt | BaseException) -> None:
        if written_twice(operations):
            expect(
                isinstance(end, WrittenTwice), f"{operations} write a key twice; expected WrittenTwice, found {end!r}"
            )
            return
        failures = self.model.failures(partition, operations)
        if isinstance(end, CommitRefused):
            number = next((n for n, operation in enumerate(operations) if same(operation, end.check)), -1)
            reported = (number, end.reason, end.found)
            right = any(
                reported == failure or (reported[:2] == failure[:2] and failure[2] is ANY) for failure in failures
            )
            expect(right, f"{operations} were refused with {reported}, but the failing checks are {failures}")
        elif isinstance(end, Receipt):
            expect(not failures, f"{operations} were committed, but {failures} fail")
            self.model.commit(partition, operations, end.outcomes)
        else:
            broken(f"{operations} ended with {end!r}")

    @initialize()
    def begin(self) -> None:
        async def work() -> None:
            for worker in WORKERS:
                await self.kernel.heartbeat(worker, lease_seconds=LATER_SECONDS)

        self.run(work())

    @rule(seed=st.integers(0, 2**32 - 1))
    def step(self, seed: int) -> None:
        """One step of many kinds; Hypothesis varies and shortens the history, `Chance` chooses the details."""
        chance = Chance(seed)
        kinds = {
            self.one_commit: 6,
            self.commits_at_once: 4,
            self.claim: 4,
            self.claims_at_once: 2,
            self.worker: 2,
            self.keep: 1,
            self.fleeting_record: 1,
            self.find: 3,
            self.read_log: 3,
            self.compare: 2,
        }
        chance.random.choices(tuple(kinds), tuple(kinds.values()))[0](chance)

    def one_commit(self, chance: Chance) -> None:
        partition, operations = chance.commit()
        self._commit(partition, operations, steered=chance.often())

    def _commit(self, partition: str, operations: tuple[Operation, ...], *, steered: bool) -> None:
        resolved = tuple(resolve(self.model, partition, operation, steered=steered) for operation in operations)
        note(f"commit in {partition}: {resolved}")

        async def work() -> Receipt | BaseException:
            (end,) = await asyncio.gather(self.commit(partition, resolved), return_exceptions=True)
            return end

        self.judge(partition, resolved, self.run(work()))

    def commits_at_once(self, chance: Chance) -> None:
        """Concurrent commits end as if made one after another; a reader sees one of the states between."""
        awaited, steered = chance.often(), chance.often()
        commits = [chance.commit() for _ in range(chance.number(2, 6))]
        resolved = [(p, tuple(resolve(self.model, p, each, steered=steered) for each in some)) for p, some in commits]
        note(f"commits at once: {resolved}")
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

    def fleeting_record(self, chance: Chance) -> None:
        """A record that expires at once is written, and no longer found."""
        key, rank = chance.one(*KEYS), chance.number(-2, 2)

        async def work() -> None:
            before = await self.kernel.get("p", "passing", key)
            expect(before is None, f"an expired record was returned: {before}")
            receipt = await self.kernel.commit("p", Insert("passing", key, b"", {"rank": rank}, expires_in=0.002))
            equal(receipt.version("passing", key), 1, "the version of a record whose predecessor expired")
            await asyncio.sleep(0.004)
            equal((await self.kernel.find("p", Query("passing", order="rank"))).records, (), "the remaining records")

        self.run(work())

    # -------------------------------------------------------------------------------------------------------- work

    def claim(self, chance: Chance) -> None:
        """Some items are enqueued, some are claimed, and the worker may die."""
        queue, worker, limit = chance.one(*QUEUES), chance.one(*WORKERS), chance.number(1, 6)
        for _ in range(chance.number(0, 8)):
            self._commit(chance.partition(), (chance.enqueue(queue),), steered=True)
        note(f"{worker} claims {limit} of {queue}")
        self.model.claim(queue, worker, limit, self.run(self._claim(queue, worker, limit)))
        if chance.one(True, False):
            self._lease_ends(worker)

    async def _claim(self, queue: str, worker: str, limit: int) -> Any:
        return await self.kernel.claim(queue, worker, limit=limit, lease_seconds=LATER_SECONDS)

    def claims_at_once(self, chance: Chance) -> None:
        """All live workers claim concurrently: no item is claimed twice."""
        queue = chance.one(*QUEUES)
        alive = [worker for worker in WORKERS if worker not in self.model.expired]

        async def work() -> list[Any]:
            return await asyncio.gather(*(self._claim(queue, worker, 2) for worker in alive))

        for worker, claims in zip(alive, self.run(work()), strict=True):
            for claim in claims:
                self.model.claimed((claim.partition, claim.queue, claim.key), worker, claim)

    def worker(self, chance: Chance) -> None:
        worker, what = chance.one(*WORKERS), chance.one("lease ends", "heartbeat", "retire")
        note(f"{worker}: {what}")
        if what == "lease ends":
            self._lease_ends(worker)
            return
        if what == "retire":
            released = self.run(self.kernel.retire(worker))
            equal(released, self.model.retire(worker), f"the number of items that {worker} held")
        self.run(self.kernel.heartbeat(worker, lease_seconds=LATER_SECONDS))
        self.model.expired.discard(worker)

    def _lease_ends(self, worker: str) -> None:
        async def work() -> None:
            await self.kernel.heartbeat(worker, lease_seconds=0.001)
            await asyncio.sleep(0.003)

        self.run(work())
        self.model.expired.add(worker)

    # --------------------------------------------------------------------------------------------- blobs and lifecycle

    def keep(self, chance: Chance) -> None:
        what, partition = chance.one("stage", "sweep", "reopen"), chance.partition()
        note(f"{what} in {partition}")
        if what == "sweep":
            equal(self.run(self.kernel.sweep()).blobs, 0, "the number of swept blobs")
        elif what == "reopen" and self.subject.persistent:
            self.run(self._reopen())
        else:
            for data in DATA:
                blob = self.run(self.kernel.stage_blob(partition, data))
                self.model.blobs.add((partition, blob.digest))

    async def _reopen(self) -> None:
        await self.opened.aclose()
        await self.open()

    # ------------------------------------------------------------------------------------------------------ reading

    def find(self, chance: Chance) -> None:
        """Some records are written, then all matching ones are found."""
        partition, query = chance.partition(), chance.query()
        for _ in range(chance.number(0, 4)):
            put = Put(query.collection, chance.one(*KEYS), b"", chance.fields())
            self._commit(partition, (put,), steered=True)
        note(f"find in {partition}: {query}")
        self.run(compare_found(self.kernel, self.model, partition, query, chance.number(1, 4)))

    def read_log(self, chance: Chance) -> None:
        partition, stream, limit, backward = (
            chance.partition(),
            chance.one(*STREAMS),
            chance.number(1, 5),
            chance.often(),
        )
        known = self.model.streams.get((partition, "log", stream), ModelStream())
        after = chance.one(None, chance.number(0, known.head + 2))
        before = chance.one(None, chance.number(1, known.head + 2))
        note(f"read {partition}/{stream}: after {after}, before {before}, limit {limit}, backward {backward}")

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

    def compare(self, _chance: Chance) -> None:
        self.run(compare_everything(self.kernel, self.model))


# ------------------------------------------------------------------------------------------------------------ running


def machine_of(subject: KernelSubject) -> type[StorageMachine]:
    """A new machine class with its own count of steps."""
    return type("StorageMachine", (StorageMachine,), {"subject": subject, "steps": 0})


def check_histories(
    given: ConformanceSubject[KernelPlace] | Callable[..., Any],
    *,
    steps: int = 1000,
    length: int = 50,
    shrink: bool = True,
    repeatable: bool = False,
) -> int:
    """Make at least ``steps`` random steps in histories of ``length``; returns their number.

    A broken law is raised with the shortest history that shows it (``shrink``) and a blob that repeats it;
    ``repeatable`` makes the same histories each time.
    """
    machine = machine_of(KernelSubject.of(given))
    while machine.steps < steps:
        chosen = settings(
            max_examples=max(-(-(steps - machine.steps) // length), 1),
            stateful_step_count=length,
            deadline=None,
            database=None,
            derandomize=repeatable,
            print_blob=True,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine, settings=chosen)
    return machine.steps


# ------------------------------------------------------------------------------------------------------------ comparing


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
