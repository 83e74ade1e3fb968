"""Graphs on Keelbolt's saver behave as on LangGraph's in-memory saver; two writers never fork a thread silently."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from keelbolt.errors import CheckpointConflict, InvalidRequest, InvalidValue, StorageClosed
from keelbolt.kernel import Query, open_storage
from keelbolt.langgraph import KeelboltSaver, pruning
from keelbolt.langgraph.families import CHECKPOINTS, VALUES, WRITES, partition_of
from keelbolt.langgraph.records import Lane
from tests.integration.frameworks.graphs import build

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def shape(graph: Any, config: Any = CONFIG) -> list[Any]:
    """Return the history of a thread without ids and times."""
    return [
        (
            snapshot.values,
            snapshot.next,
            {key: value for key, value in snapshot.metadata.items() if key not in ("thread_id", "run_id")},
            [(task.name, task.error, [i.value for i in task.interrupts]) for task in snapshot.tasks],
        )
        for snapshot in graph.get_state_history(config)
    ]


def walk(saver: Any) -> Any:
    """Run an interrupt, its answer, a time travel with another answer and an update of old state; return results."""
    graph = build(saver)
    seen: list[Any] = [graph.invoke({"log": ["begun"]}, CONFIG)]
    seen.append(graph.invoke(Command(resume="yes"), CONFIG))
    seen.append(shape(graph))
    asked = next(s for s in graph.get_state_history(CONFIG) if s.next == ("approve",))
    seen.append(graph.invoke(None, asked.config))  # time travel: asks again
    seen.append(graph.invoke(Command(resume="no"), CONFIG))
    planned = next(s for s in graph.get_state_history(CONFIG) if s.next == ("inner",))
    changed = graph.update_state(planned.config, {"log": ["changed"]}, as_node="read")
    seen.append(graph.invoke(None, changed))
    seen.append(graph.invoke({"log": ["again"]}, planned.config))  # a new input at an old checkpoint
    seen.append(shape(graph))
    seen.append(shape(graph, {"configurable": {"thread_id": "none"}}))
    return json.loads(json.dumps(seen, default=lambda value: getattr(value, "value", str(value))))


def test_a_graph_behaves_as_on_the_memory_saver(any_url: str) -> None:
    """Interrupts, time travel, updates of old state and subgraphs give the same results and the same history."""
    with KeelboltSaver(any_url) as saver:
        assert without_ids(walk(saver)) == without_ids(walk(InMemorySaver()))


def without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "…" if key in ("id", "parents", "ns", "interrupt_id") else without_ids(each)
            for key, each in value.items()
        }
    return [without_ids(each) for each in value] if isinstance(value, list) else value


async def test_async_and_sync_methods_share_a_thread(any_url: str) -> None:
    """invoke in another thread continues a run that ainvoke started, on the same saver."""
    async with KeelboltSaver(any_url) as saver:
        graph = build(saver)
        asked = await graph.ainvoke({"log": ["begun"]}, CONFIG)
        assert asked["__interrupt__"][0].value == {"question": "publish?"}
        done = await asyncio.to_thread(graph.invoke, Command(resume="yes"), CONFIG)
        assert done["log"][-2:] == ["approved yes", "write"]
        assert (await graph.aget_state(CONFIG)).values == graph.get_state(CONFIG).values


def test_a_run_that_is_killed_at_every_node_finishes(kept_url: str, tmp_path: Path) -> None:
    """Each process finishes one node and is killed in the next: same result, and no finished node runs again."""
    notes = tmp_path / "notes"
    command = [sys.executable, "-m", "tests.integration.frameworks.graphs", kept_url, "t", str(notes), "2"]
    while (ended := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        assert ended.returncode == -9, ended.stderr
    with InMemorySaver() as saver:
        graph = build(saver)
        graph.invoke({"log": ["begun"]}, CONFIG)
        expected = graph.invoke(Command(resume="yes"), CONFIG)
    assert ended.stdout.strip() == repr(expected)
    ran = notes.read_text().split()
    assert sorted(name for name in ran if name != "approve") == ["first", "plan", "read", "search", "second", "write"]


# ------------------------------------------------------------------------------------------------------- two writers


async def test_the_second_writer_gets_an_error(any_url: str) -> None:
    """Of two runs that start at the same checkpoint, one continues; the thread does not fork."""
    async with KeelboltSaver(any_url) as saver:
        first, second = await race(saver, saver)
        assert [type(each) for each in (first, second)].count(CheckpointConflict) == 1
        history = [found async for found in saver.alist(CONFIG)]
        parents = [found.parent_config["configurable"]["checkpoint_id"] for found in history if found.parent_config]
        assert len(parents) == len(set(parents))


async def test_writers_in_two_processes_exclude_each_other(kept_url: str) -> None:
    """Two connections, which share nothing in memory, exclude each other too."""
    async with open_storage(kept_url) as one, open_storage(kept_url) as other:
        first, second = await race(KeelboltSaver(one), KeelboltSaver(other))
        assert [type(each) for each in (first, second)].count(CheckpointConflict) == 1


async def test_a_fork_is_allowed_on_request(any_url: str) -> None:
    """With on_conflict="fork" both runs finish, as on other savers."""
    async with KeelboltSaver(any_url, on_conflict="fork") as saver:
        results = await race(saver, saver)
        assert [type(each) for each in results] == [dict, dict]


async def race(one: KeelboltSaver, other: KeelboltSaver) -> tuple[Any, Any]:
    """Load the thread in both runs before either of them writes."""
    met = asyncio.Barrier(2)

    def waiting(saver: KeelboltSaver) -> KeelboltSaver:
        load = saver.aget_tuple

        class Waiting(KeelboltSaver):
            async def aget_tuple(self, config: Any) -> Any:
                found = await load(config)
                await met.wait()
                return found

        clone = copy.copy(saver)
        clone.__class__ = Waiting
        return clone

    def simple(saver: KeelboltSaver) -> Any:
        from langgraph.graph import StateGraph

        from tests.integration.frameworks.graphs import State

        async def step(state: State) -> dict[str, Any]:
            return {"log": ["step"]}

        builder = StateGraph(State)
        builder.add_node("step", step)
        builder.set_entry_point("step")
        return builder.compile(checkpointer=waiting(saver))

    results = await asyncio.gather(
        simple(one).ainvoke({"log": ["one"]}, CONFIG, durability="sync"),
        simple(other).ainvoke({"log": ["other"]}, CONFIG, durability="sync"),
        return_exceptions=True,
    )
    return results[0], results[1]


async def test_a_run_does_not_continue_in_a_deleted_and_recreated_thread(kept_url: str) -> None:
    """The saver has cached the head of the old thread; the new thread has the same version, but another head."""
    async with open_storage(kept_url) as one, open_storage(kept_url) as other:
        stale, fresh = KeelboltSaver(one), KeelboltSaver(other)
        old = await put(stale, None, {"n": 1}, 1)
        await fresh.adelete_thread("t")
        new = await put(fresh, None, {"n": 2}, 1)
        with pytest.raises(CheckpointConflict):
            await put(stale, old, {"n": 3}, 2)
        found = await stale.aget_tuple(CONFIG)
        assert found is not None
        assert found.config == new


async def test_a_wrong_checkpoint_id_is_an_error(any_url: str) -> None:
    """A run at a checkpoint that does not exist (or is another tenant's) saves nothing."""
    async with KeelboltSaver(any_url) as saver:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_id": "1f0b0000-0000-6000-8000-000000000000"}}
        with pytest.raises(CheckpointConflict, match="does not exist"):
            await build(saver).ainvoke({"log": []}, config, durability="sync")
        assert [found async for found in saver.alist(None)] == []


async def test_tenants_are_isolated(kept_url: str) -> None:
    async with KeelboltSaver(kept_url, tenant="a") as a, KeelboltSaver(kept_url, tenant="b") as b:
        await build(a).ainvoke({"log": ["begun"]}, CONFIG)
        assert await b.aget_tuple(CONFIG) is None
        assert [found async for found in b.alist(None)] == []


# -------------------------------------------------------------------------------------------------------- stored data


async def put(saver: KeelboltSaver, parent: Any, values: dict[str, Any], version: int, **metadata: Any) -> Any:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = dict.fromkeys(values, version)
    config: Any = parent or {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    described: Any = {"source": "loop", "step": version, **metadata}
    return await saver.aput(config, checkpoint, described, dict.fromkeys(values, version))


async def test_equal_values_are_stored_once(any_url: str) -> None:
    """A hundred checkpoints and writes with the same large value store its bytes once."""
    async with open_storage(any_url) as kernel:
        saver = KeelboltSaver(kernel)
        config = None
        for version in range(1, 101):
            config = await put(saver, config, {"document": "d" * 100_000, "n": version}, version)
            await saver.aput_writes(config, [("document", "d" * 100_000)], f"task-{version}")
        page = await kernel.scoped(partition_of("default")).find(Query(VALUES, equal={"thread": "t"}))
        assert len(page.records) == 1
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"document": "d" * 100_000, "n": 100}
        assert found.pending_writes == [("task-100", "document", "d" * 100_000)]


async def test_large_values_are_blobs_and_removed_with_their_thread(any_url: str) -> None:
    """A value of 20 MB is stored, copied with its thread, and removed when both threads are pruned or deleted."""
    async with open_storage(any_url) as kernel:
        saver = KeelboltSaver(kernel)
        large = b"large" * 4_000_000
        first = await put(saver, None, {"file": large}, 1)
        await saver.acopy_thread("t", "u")
        await put(saver, first, {"file": b"small" * 200}, 2)
        await saver.aprune(["t"])
        copied = await saver.aget_tuple({"configurable": {"thread_id": "u"}})
        assert copied is not None
        assert copied.checkpoint["channel_values"]["file"] == large
        scope = kernel.scoped(partition_of("default"))
        kept = await scope.find(Query(VALUES, equal={"thread": "t"}))
        assert [record.fields.get("blob") for record in kept.records] == [None]
        await saver.adelete_thread("u")
        assert (await scope.find(Query(VALUES, equal={"thread": "u"}))).records == ()


async def test_a_task_writes_more_values_than_a_commit_has_operations(any_url: str) -> None:
    """A node that sends 1,500 messages of more than 512 bytes, and one of 70 MB in 100 values."""
    async with KeelboltSaver(any_url) as saver:
        config = await saver.aput({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})
        many = [("a", f"{number:06}" * 200) for number in range(1500)]
        await saver.aput_writes(config, many, "one")
        large = [("b", bytes([number]) * 700_000) for number in range(100)]
        await saver.aput_writes(config, large, "two")
        found = await saver.aget_tuple(config)
        assert found is not None
        written = [(channel, value) for _, channel, value in found.pending_writes or ()]
        assert written == [*many, *large]


@pytest.mark.parametrize("collection", [CHECKPOINTS, WRITES, VALUES])
async def test_a_run_that_begins_while_its_thread_is_deleted_is_complete_or_gone(
    collection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new run saves its first checkpoint just before the deletion reads a collection."""
    url = f"sqlite:///{tmp_path}/x.db"
    async with KeelboltSaver(url) as saver, KeelboltSaver(url) as other:
        graph, again = build(saver), build(other)
        await graph.ainvoke({"log": ["old" * 500]}, CONFIG)
        read, started = pruning._of_thread, asyncio.Event()

        async def late(scope: Any, wanted: str, thread: str) -> Any:
            if wanted == collection and not started.is_set():
                started.set()
                await again.ainvoke({"log": ["new" * 500]}, CONFIG)
            async for record in read(scope, wanted, thread):
                yield record

        monkeypatch.setattr(pruning, "_of_thread", late)
        await saver.adelete_thread("t")
        assert started.is_set()
        state = await graph.aget_state(CONFIG)
        if not state.values:
            assert [each async for each in saver.alist(CONFIG)] == []
        else:
            assert state.values["log"][0] == "new" * 500
            assert state.interrupts


async def test_prune_keeps_what_delta_channels_need(any_url: str) -> None:
    """After prune, a delta channel of the last checkpoint is rebuilt as before; older ancestors are removed."""
    async with KeelboltSaver(any_url) as saver:
        counters = {"counters_since_delta_snapshot": {"log": (1, 1)}}
        older = await put(saver, None, {"log": ["old"]}, 1, **counters)
        seed = await put(saver, older, {"log": ["seed"]}, 2, **counters)
        await saver.aput_writes(seed, [("log", "a")], "task-1")
        middle = await put(saver, seed, {}, 3, **counters)
        await saver.aput_writes(middle, [("log", "b")], "task-2")
        head = await put(saver, middle, {}, 4, **counters)
        before = await saver.aget_delta_channel_history(config=head, channels=["log"])
        assert before["log"] == {"seed": ["seed"], "writes": [("task-1", "log", "a"), ("task-2", "log", "b")]}
        await saver.aprune(["t"])
        assert await saver.aget_delta_channel_history(config=head, channels=["log"]) == before
        assert len([found async for found in saver.alist(CONFIG)]) == 3
        assert await saver.aget_tuple(older) is None


async def test_a_run_continues_while_its_thread_is_pruned(kept_url: str) -> None:
    """Concurrent pruning loses no value that a checkpoint needs."""
    async with open_storage(kept_url) as one, open_storage(kept_url) as other:
        writer, pruner = KeelboltSaver(one), KeelboltSaver(other)
        done = asyncio.Event()

        async def prune() -> None:
            while not done.is_set():
                await pruner.aprune(["t"])

        pruning = asyncio.create_task(prune())
        config = None
        for version in range(1, 61):
            document = f"{version % 3}" * 1000  # the value recurs, so that removed values are written again
            config = await put(writer, config, {"document": document}, version)
            await writer.aput_writes(config, [("next", f"{(version + 1) % 3}" * 1000)], "task")
            found = await pruner.aget_tuple(CONFIG)
            assert found is not None
            assert found.checkpoint["channel_values"]["document"][0] in "012"
        done.set()
        await pruning
        last = await writer.aget_tuple(CONFIG)
        assert last is not None
        assert last.checkpoint["channel_values"] == {"document": "0" * 1000}


async def test_the_head_is_the_last_checkpoint_and_not_the_greatest_id(any_url: str) -> None:
    """A process with a slow clock creates smaller ids; the thread still continues after the last write."""
    async with KeelboltSaver(any_url) as saver:
        first = await put(saver, None, {"n": 1}, 1)
        late = empty_checkpoint()
        late["id"] = "00000000-0000-6000-8000-000000000000"
        late["channel_values"], late["channel_versions"] = {"n": 2}, {"n": 2}
        await saver.aput(first, late, {"source": "loop", "step": 2}, {"n": 2})
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"n": 2}


# ---------------------------------------------------------------------------------------------------------- bad input


async def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="on_conflict"):
        KeelboltSaver("memory:", on_conflict="ignore")  # type: ignore[arg-type]
    saver = KeelboltSaver("memory:")
    with pytest.raises(ValueError, match="strategy"):
        await saver.aprune(["t"], strategy="some")
    with pytest.raises(TypeError, match="serial"):
        await put(saver, None, {"lock": asyncio.Lock()}, 1)
    saver.close()
    with pytest.raises(StorageClosed):
        await saver.aget_tuple(CONFIG)
    async with open_storage("memory:") as kernel:
        opened = KeelboltSaver(kernel)
        with pytest.raises(InvalidRequest, match="async method"):
            opened.get_tuple(CONFIG)


def test_ids_of_any_text_are_distinct() -> None:
    """Ids with slashes and empty names are distinct."""
    lanes = [Lane("a/b", ""), Lane("a", "b"), Lane("a", "b/"), Lane("", "a/b"), Lane("a/b/", "")]
    assert len({lane.key for lane in lanes}) == len(lanes)


async def test_the_id_of_an_addressed_checkpoint_compares_as_a_plain_one(any_url: str) -> None:
    """The saver marks the id; comparison with another subclass of str still works."""

    class AnyId(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return isinstance(other, str)

        __hash__ = str.__hash__

    async with KeelboltSaver(any_url) as saver:
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        saved = await saver.aput(config, empty_checkpoint(), {}, {})  # type: ignore[arg-type]
        found = await saver.aget_tuple(saved)
        assert found is not None
        assert found.config == saved
        assert found.config["configurable"]["checkpoint_id"] == AnyId()
        assert {found.config["configurable"]["checkpoint_id"]} == {saved["configurable"]["checkpoint_id"]}
