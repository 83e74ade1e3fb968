"""Refusals that are the same on every engine: closed, another loop, a forked child, opened twice."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import (
    BadCursor,
    Forked,
    InvalidName,
    InvalidRequest,
    InvalidValue,
    LogTrimmed,
    NoIndex,
    NotDeclared,
    StorageClosed,
    StorageFull,
    WrongLoop,
)
from keelbolt.kernel import base_kernel
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.hints import LogTopic
from keelbolt.kernel.keys import PageCursor, write_cursor
from keelbolt.kernel.logs import Append, Draft, Trim
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.kernel.records import Collection, Index, Insert, Put, Query
from keelbolt.kernel.urls import open_storage

NOTES = Collection("note", {"state": str, "rank": int}, (Index("by_key"), Index("by_rank", ("state",), "rank")))
FAMILIES = (NOTES,)
ENTRY = Draft("made", b"")


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Kernel]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/file.db"
    return lambda: open_storage(url, declare=FAMILIES)


async def all_of(kernel: Kernel) -> list[Any]:
    return [problem async for problem in kernel.check()]


async def first_of(kernel: Kernel) -> Any:
    return await anext(aiter(kernel.tail("p", "log", "a")))


async def committed(kernel: Kernel) -> Any:
    return await kernel.commit("p", Put("note", "a", b""))


async def watched(kernel: Kernel) -> None:
    kernel.watch(LogTopic("p", "log", "a"))


VERBS: dict[str, Callable[[Kernel], Awaitable[Any]]] = {
    "declare": lambda kernel: kernel.declare(NOTES),
    "flush": lambda kernel: kernel.flush(),
    "stats": lambda kernel: kernel.stats(),
    "count_work": lambda kernel: kernel.count_work(["runs"]),
    "check": all_of,
    "sweep": lambda kernel: kernel.sweep(),
    "partitions": lambda kernel: kernel.partitions(),
    "commit": committed,
    "get": lambda kernel: kernel.get("p", "note", "a"),
    "get_many": lambda kernel: kernel.get_many("p", "note", ["a"]),
    "find": lambda kernel: kernel.find("p", Query("note")),
    "count": lambda kernel: kernel.count("p", Query("note")),
    "read_log": lambda kernel: kernel.read_log("p", "log", "a"),
    "log_state": lambda kernel: kernel.log_state("p", "log", "a"),
    "seq_of": lambda kernel: kernel.seq_of("p", "log", "a", "k"),
    "tail": first_of,
    "claim": lambda kernel: kernel.claim("jobs", "w"),
    "heartbeat": lambda kernel: kernel.heartbeat("w"),
    "retire": lambda kernel: kernel.retire("w"),
    "work": lambda kernel: kernel.work("p", "jobs", "a"),
    "list_work": lambda kernel: kernel.list_work("p", "jobs", state="dead"),
    "stage_blob": lambda kernel: kernel.stage_blob("p", b"x"),
    "open_blob": lambda kernel: kernel.open_blob("p", "digest"),
    "watch": watched,
}


def test_the_list_of_methods_is_complete() -> None:
    verbs = {name for name in Kernel.__abstractmethods__ if not name.startswith("_")}
    assert verbs - {"open", "close", "health"} == set(VERBS)


async def error_of(call: Callable[[Any], Any], kernel: Kernel) -> Exception | None:
    """Return the error that a call raises, at once or when it is awaited."""
    try:
        answer = call(kernel)
        if isinstance(answer, Awaitable):
            await answer
    except Exception as error:
        return error
    return None


async def refused(kernel: Kernel, kind: type[InvalidRequest | StorageClosed]) -> None:
    """Check that every method raises this error."""
    for name, verb in VERBS.items():
        assert type(await error_of(verb, kernel)) is kind, name
    health = await kernel.health()
    assert (health.reads, health.writes) == (False, False)
    assert health.detail == kind.__doc__


async def test_before_it_is_opened(make: Callable[[], Kernel]) -> None:
    await refused(make(), StorageClosed)


async def test_after_it_was_closed(make: Callable[[], Kernel]) -> None:
    async with make() as kernel:
        await kernel.commit("p", Put("note", "a", b""))
        reader = await kernel.open_blob("p", (await kernel.stage_blob("p", b"bytes")).digest)
    await refused(kernel, StorageClosed)
    with pytest.raises(StorageClosed):
        await reader.read()
    await kernel.close()  # a second close does nothing


async def test_a_closed_one_can_be_opened_again(make: Callable[[], Kernel]) -> None:
    kernel = make()
    for _ in range(3):
        async with kernel:
            await kernel.commit("p", Put("note", "a", b""))
            assert await kernel.get("p", "note", "a") is not None


async def test_opening_twice_is_refused_and_changes_nothing(make: Callable[[], Kernel]) -> None:
    async with make() as kernel:
        with pytest.raises(InvalidRequest, match="open already"):
            await kernel.open()
        await kernel.commit("p", Put("note", "a", b""))


async def test_opening_twice_at_once_is_refused_too(make: Callable[[], Kernel]) -> None:
    kernel = make()
    answers = await asyncio.gather(kernel.open(), kernel.open(), return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(None), InvalidRequest]
    await kernel.close()


async def test_another_loop_is_refused(make: Callable[[], Kernel]) -> None:
    async with make() as kernel:
        await asyncio.to_thread(lambda: asyncio.run(refused(kernel, WrongLoop)))
        with pytest.raises(WrongLoop):
            await asyncio.to_thread(lambda: asyncio.run(kernel.close()))
        await kernel.commit("p", Put("note", "a", b""))


async def test_a_thread_without_a_loop_is_refused(make: Callable[[], Kernel]) -> None:
    async with make() as kernel:
        for call in (
            lambda: kernel.commit("p", Put("note", "a", b"")),
            lambda: kernel.watch(LogTopic("p", "log", "a")),
        ):
            with pytest.raises(WrongLoop, match="one storage per loop"):
                await asyncio.to_thread(call)
        assert await kernel.get("p", "note", "a") is None


async def test_a_forked_child_is_refused(make: Callable[[], Kernel], monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has the parent's memory, but none of its threads and not its locks."""
    async with make() as kernel:
        await kernel.commit("p", Put("note", "a", b""))
        monkeypatch.setattr(base_kernel, "_forks", base_kernel._forks + 1)  # as after fork() in the child
        await refused(kernel, Forked)
        with pytest.raises(Forked):
            await kernel.close()
        monkeypatch.undo()
        assert await kernel.get("p", "note", "a") is not None


def test_a_real_fork_is_noticed() -> None:
    before = base_kernel._forks
    child = os.fork()
    if child == 0:
        os._exit(base_kernel._forks - before)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert base_kernel._forks == before


async def test_a_failing_declaration_leaves_it_closed(make: Callable[[], Kernel]) -> None:
    before = set(threading.enumerate())
    kernel = make()
    kernel._to_declare = (NOTES, Collection("Bad"))  # type: ignore[attr-defined]
    with pytest.raises(InvalidName):
        await kernel.open()
    with pytest.raises(StorageClosed):
        await kernel.flush()
    left = set(threading.enumerate()) - before
    assert [thread.name for thread in left if thread.name.startswith("keelbolt")] == []


async def test_a_failed_declaration_is_not_declared(
    make: Callable[[], Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make() as kernel:
        await fill(kernel, range(3))

        async def full(_shape: CheckedCollection) -> None:
            raise StorageFull

        monkeypatch.setattr(kernel, "_declare", full)
        for family in (Collection("new"), Collection("note", {"rank": int})):
            with pytest.raises(StorageFull):
                await kernel.declare(family)
        with pytest.raises(NotDeclared):
            await kernel.commit("p", Put("new", "a", b""))
        await fill(kernel, range(3, 6))
        assert len((await kernel.find("p", Query("note", {"state": "open"}, "rank"))).records) == 6


def test_one_that_was_never_closed_warns_when_it_is_collected() -> None:
    async def forget() -> None:
        await MemoryKernel().open()

    def collect() -> None:
        asyncio.run(forget())
        gc.collect()

    with pytest.warns(ResourceWarning, match="memory storage was never closed; use `async with open_storage"):
        collect()


def test_unopened_and_closed_ones_are_collected_without_a_warning() -> None:
    async def use() -> None:
        async with MemoryKernel():
            pass

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MemoryKernel()
        asyncio.run(use())
        with pytest.raises(InvalidValue):
            MemoryKernel(durability="fast")  # type: ignore[arg-type]
        gc.collect()


# ---------------------------------------------------------------------------------------------------------- arguments

BAD: list[tuple[Callable[[Any], Any], type[InvalidRequest], str]] = [
    (lambda k: k.commit(["p"], Put("note", "a", b"")), InvalidName, "partition"),
    (lambda k: k.get(None, "note", "a"), InvalidName, "partition"),
    (lambda k: k.get("p", "other", "a"), NotDeclared, "declare="),
    (lambda k: k.get("p", ["note"], "a"), NotDeclared, "declare="),
    (lambda k: k.get("p", "note", 7), InvalidName, "key"),
    (lambda k: k.get_many("p", "note", "abc"), InvalidValue, "a list of keys, not str"),
    (lambda k: k.get_many("p", "note", 7), InvalidValue, "a list of keys, not int"),
    (lambda k: k.get_many("p", "note", ["a", None]), InvalidName, "key"),
    (lambda k: k.find("p", "note"), InvalidValue, "a Query"),
    (lambda k: k.find("p", Query("note", ["state"])), InvalidValue, "a mapping"),  # type: ignore[arg-type]
    (lambda k: k.find("p", Query("note", {"state": 7}, "rank")), InvalidValue, "must be str"),
    (lambda k: k.find("p", Query("note", {"nope": "x"})), NotDeclared, "no field 'nope'"),
    (lambda k: k.find("p", Query("note", {"state": "x"})), NoIndex, "declare Index"),
    (lambda k: k.find("p", Query("note", {"state": "x"}, "rank", since="1")), InvalidValue, "must be int"),
    (lambda k: k.find("p", Query("note", {"state": "x"}, "rank", until=1.5)), InvalidValue, "must be int"),
    (lambda k: k.find("p", Query("note", since=7)), InvalidName, "key"),
    (lambda k: k.find("p", Query("note"), limit=0), InvalidValue, "limit must be a whole number from 1"),
    (lambda k: k.find("p", Query("note"), limit=10_001), InvalidValue, "to 10000"),
    (lambda k: k.find("p", Query("note"), limit="5"), InvalidValue, "limit"),
    (lambda k: k.find("p", Query("note"), cursor="nonsense"), BadCursor, "start again"),
    (lambda k: k.find("p", Query("note"), cursor=7), BadCursor, "start again"),
    (lambda k: k.count("p", Query("note"), cap=0), InvalidValue, "cap"),
    (lambda k: k.read_log("p", "Log", "a"), InvalidName, "log 'Log'"),
    (lambda k: k.read_log("p", ["log"], "a"), InvalidName, "log"),
    (lambda k: k.read_log("p", "log", ""), InvalidName, "stream"),
    (lambda k: k.read_log("p", "log", "a", after=-1), InvalidValue, "after"),
    (lambda k: k.read_log("p", "log", "a", before=0), InvalidValue, "before"),
    (lambda k: k.read_log("p", "log", "a", limit=None), InvalidValue, "limit"),
    (lambda k: k.read_log("p", "log", "a", max_bytes=0), InvalidValue, "max_bytes"),
    (lambda k: k.claim("Jobs", "w"), InvalidName, "queue 'Jobs'"),
    (lambda k: k.claim("jobs", ""), InvalidName, "string"),
    (lambda k: k.claim("jobs", "w", limit=0), InvalidValue, "limit"),
    (lambda k: k.claim("jobs", "w", lease_seconds=0), InvalidValue, "more than 0 seconds"),
    (lambda k: k.heartbeat("w", lease_seconds=-1), InvalidValue, "lease_seconds"),
    (lambda k: k.retire(7), InvalidName, "string"),
    (lambda k: k.work("p", "jobs", b"a"), InvalidName, "key"),
    (lambda k: k.list_work("p", "jobs", state="lost"), InvalidValue, "'waiting', 'held' or 'dead', not 'lost'"),
    (lambda k: k.list_work("p", "jobs", state="dead", cursor="x"), BadCursor, "start again"),
    (lambda k: k.stage_blob("p", 7), InvalidValue, "not int"),
    (lambda k: k.stage_blob("p", b"", keep_seconds=-1), InvalidValue, "keep_seconds"),
    (lambda k: k.open_blob("p", None), InvalidName, "digest"),
    (lambda k: k.sweep(limit=0), InvalidValue, "limit"),
    (lambda k: k.partitions(after=7), InvalidValue, "after"),
    (lambda k: k.partitions(after="a\0b"), InvalidName, "without NUL"),
    (lambda k: k.partitions(limit=0), InvalidValue, "limit"),
    (lambda k: k.watch("log"), InvalidValue, "a LogTopic or a QueueTopic, not str"),
    (lambda k: k.declare("note"), InvalidValue, "a Collection, not str"),
]


async def test_bad_arguments_are_typed_errors(make: Callable[[], Kernel]) -> None:
    async with make() as kernel:
        for number, (call, kind, words) in enumerate(BAD):
            error = await error_of(call, kernel)
            assert type(error) is kind, f"call {number}: {error!r}"
            assert words in str(error), number
        stats = await kernel.stats()
        assert (stats.records, stats.entries, stats.blobs, stats.work) == ({}, 0, 0, {})


# -------------------------------------------------------------------------------------------------- pages and cursors


async def fill(kernel: Kernel, ranks: Iterable[int]) -> None:
    for rank in ranks:
        await kernel.commit("p", Put("note", f"k{rank}", b"", {"state": "open", "rank": rank}))


async def test_a_cursor_belongs_to_its_query(make: Callable[[], Kernel]) -> None:
    query = Query("note", {"state": "open"}, "rank")
    async with make() as kernel:
        await fill(kernel, range(4))
        page = await kernel.find("p", query, limit=2)
        rest = await kernel.find("p", query, limit=5, cursor=page.cursor)
        assert [record.key for record in (*page.records, *rest.records)] == ["k0", "k1", "k2", "k3"]
        assert rest.cursor is None
        assert rest.started_at == page.started_at
        for other in (
            Query("note"),
            Query("note", {"state": "done"}, "rank"),
            Query("note", {"state": "open"}, "rank", newest_first=True),
            Query("note", {"state": "open"}, "rank", since=1),
        ):
            with pytest.raises(BadCursor):
                await kernel.find("p", other, cursor=page.cursor)
        with pytest.raises(BadCursor):
            await kernel.find("q", query, cursor=page.cursor)


async def test_reading_trimmed_entries_is_an_error(make: Callable[[], Kernel]) -> None:
    async with make() as kernel:
        await kernel.commit("p", Append("log", "a", (ENTRY,) * 5))
        await kernel.commit("p", Trim("log", "a", 3))
        with pytest.raises(
            LogTrimmed, match="entries 2 to 3 were trimmed; load a snapshot, then read on after 3"
        ) as raised:
            await kernel.read_log("p", "log", "a", after=1)
        assert (raised.value.after, raised.value.floor, raised.value.head) == (1, 3, 5)
        assert [entry.seq for entry in (await kernel.read_log("p", "log", "a")).entries] == [4, 5]


async def test_a_tail_ends_with_an_error_when_the_storage_closes(make: Callable[[], Kernel]) -> None:
    async with make() as kernel:

        async def follow() -> None:
            async for _ in kernel.tail("p", "log", "a"):
                pass

        tail = asyncio.create_task(follow())
        await kernel.commit("p", Append("log", "a", (ENTRY,)))
    with pytest.raises(StorageClosed):
        await asyncio.wait_for(tail, 30)


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("last", [b"", b"\x00", b"\xff" * 40])
async def test_a_forged_cursor_returns_nothing(make: Callable[[], Kernel], last: bytes, newest_first: bool) -> None:
    """A cursor is not secret; a forged one returns no record of another partition."""
    async with make() as kernel:
        for partition in ("a", "b", "c"):
            await kernel.commit(partition, Insert("note", "mine", b"", {"state": "x", "rank": 1}))
        query = Query("note", {"state": "x"}, order="rank", newest_first=newest_first)
        shape = kernel._checked_query("b", query)  # type: ignore[attr-defined]
        number = shape.index_for(query)
        low, high = shape.bounds(number, "b", query)
        words = ("find", "note", newest_first, number, low.hex(), high.hex())
        with pytest.raises(BadCursor):
            await kernel.find("b", query, cursor=write_cursor(PageCursor(last, 0), *words))


async def test_a_forged_cursor_of_work_is_refused(make: Callable[[], Kernel]) -> None:
    async with make() as kernel:
        forged = write_cursor(PageCursor(b"\xff", 0), "work", "p", "jobs", "waiting")
        with pytest.raises(BadCursor):
            await kernel.list_work("p", "jobs", state="waiting", cursor=forged)
