"""The figures of the turn runner: the cost of storing turns, concurrent turns, long threads, media."""

from __future__ import annotations

import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from benchmarks.report import Report
from keelbolt.kernel import Insert, Kernel, Operation, Replace, open_storage
from keelbolt.turns import (
    DispatchContext,
    DurableStorage,
    Media,
    Memory,
    Message,
    Thought,
    ToolCall,
    TurnInput,
    TurnRunner,
    TurnScope,
    Window,
    durable_storage,
    hydrate,
    noop_storage,
)
from keelbolt.turns.durable.families import FAMILIES

Progress = Callable[[str], None]

ITERATIONS = 10
CONCURRENT = 16
AT = datetime(2026, 1, 31, tzinfo=UTC)
TEXT = "A sentence of the length that agents like to answer with, give or take a few words. " * 4
SMALL, LARGE = 1_000, 100_000
LAST = 200
MEGABYTE = 1024 * 1024
MEDIA_MEGABYTES = 200


async def run(*, quick: bool = False, progress: Progress = lambda _: None) -> Report:
    """Measure turns on SQLite files in a temporary directory."""
    report = Report()
    rounds, large, megabytes = (5, 20_000, 100) if quick else (9, LARGE, MEDIA_MEGABYTES)
    with tempfile.TemporaryDirectory(prefix="keelbolt-bench-") as folder:
        progress(f"{megabytes} MB of media")  # first, because the peak of memory never falls
        await _media(report, folder, megabytes)
        progress("turns of ten iterations")
        await _turns(report, folder, 8 * rounds)
        progress(f"{CONCURRENT} turns at once")
        await _concurrent(report, folder, rounds)
        progress(f"hydrating threads of {SMALL:,} and {large:,} messages")
        await _hydrate(report, folder, large, rounds)
    return report


# -------------------------------------------------------------------------------------------------------------- turns


async def _iteration(ctx: DispatchContext, _helpers: Any) -> None:
    """Store five values like a typical agent: a thought, a call and its result, a message, a memory."""
    place = f"{ctx.turn_id}.{ctx.iteration}"
    known: dict[str, Any] = {"tool": "search", "args": {"q": TEXT[:80]}, "created_at": AT, "updated_at": AT}
    call = ToolCall(id=f"call_{ctx.iteration}", is_complete=False, **known)
    await ctx.store_thought(Thought(id=place, content=TEXT[:80], created_at=AT, updated_at=AT))
    await ctx.store_tool_call(call)
    await ctx.mutate_tool_call(call.completed(TEXT, at=AT))
    await ctx.store_message(Message(id=place, role="assistant", content=TEXT, created_at=AT, updated_at=AT))
    await ctx.store_memory(
        Memory(id=place, content=TEXT[:80], confidence=0.5, importance=0.5, created_at=AT, updated_at=AT)
    )
    if ctx.iteration == ITERATIONS - 1:
        ctx.ack()


async def _turns(report: Report, folder: str, rounds: int) -> None:
    async with (
        durable_storage(f"sqlite:///{folder}/turns.db") as storage,
        open_storage(f"sqlite:///{folder}/bare.db", declare=FAMILIES) as bare,
    ):
        kept = storage.runner(executor_callback=_iteration)
        lost = TurnRunner(executor_callback=_iteration, **noop_storage())
        operations = await _operations(folder)
        times: dict[str, list[float]] = {"kept": [], "lost": [], "bare": []}
        for number in range(rounds):  # interleaved, so that a slow period of the machine affects all of them
            times["lost"].append(await _timed(partial(_run, lost)))
            times["bare"].append(await _timed(partial(_commit, bare, operations, number)))
            times["kept"].append(await _timed(partial(_run, kept)))
    each = {name: statistics.median(found) for name, found in times.items()}
    report.note("a turn of 10 iterations, not stored", 1000 * each["lost"], "ms")
    report.note("its 10 commits, bare", 1000 * each["bare"], "ms")
    report.note("the turn, stored in SQLite", 1000 * each["kept"], "ms")
    report.at_most("the turn, stored ÷ (not stored + 10 commits)", each["kept"] / (each["lost"] + each["bare"]), "×", 2)


async def _run(runner: TurnRunner, thread: str = "thread") -> None:
    result = await runner.run_result(TurnInput(system_prompt="Work.", stash={"scope": TurnScope("bench", thread)}))
    assert result.ok, result.errors


async def _at_once(runner: TurnRunner, threads: list[str]) -> None:
    await asyncio.gather(*(_run(runner, thread) for thread in threads))


async def _operations(folder: str) -> list[tuple[Operation, ...]]:
    """Return the operations in the commits of one turn."""
    found: list[tuple[Operation, ...]] = []
    async with durable_storage(f"sqlite:///{folder}/operations.db") as storage:
        commit = storage.kernel.commit

        def noted(partition: str, *operations: Operation) -> Any:
            found.append(operations)
            return commit(partition, *operations)

        storage.kernel.commit = noted  # type: ignore[method-assign]
        await _run(storage.runner(executor_callback=_iteration))
    assert len(found) == ITERATIONS
    return found


async def _commit(kernel: Kernel, commits: list[tuple[Operation, ...]], number: int) -> None:
    """Write the same records under other keys, in the same number of commits."""
    for place, operations in enumerate(commits):
        inserts = [
            Insert(each.collection, f"{each.key}.{number}.{place}", each.body, each.fields)
            for each in operations
            if isinstance(each, Insert | Replace)
        ]
        await kernel.commit("~turns/bench", *inserts)


async def _timed(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    await act()
    return time.perf_counter() - began


# --------------------------------------------------------------------------------------------------------- concurrent


async def _concurrent(report: Report, folder: str, rounds: int) -> None:
    """Concurrent turns on one thread contend for the order of its records; turns on separate threads do not."""
    async with durable_storage(f"sqlite:///{folder}/concurrent.db") as storage:
        runner = storage.runner(executor_callback=_iteration)
        times: dict[str, list[float]] = {"one": [], "many": []}
        for number in range(-1, rounds):
            for name, found in times.items():
                threads = [f"{name}-{0 if name == 'one' else each}" for each in range(CONCURRENT)]
                seconds = await _timed(partial(_at_once, runner, threads))
                if number >= 0:  # the first round starts with empty threads
                    found.append(seconds)
    rate = {name: CONCURRENT / statistics.median(found) for name, found in times.items()}
    report.note(f"{CONCURRENT} turns at once on {CONCURRENT} threads", rate["many"], "turns/s")
    report.note(f"{CONCURRENT} turns at once on one thread", rate["one"], "turns/s")
    report.at_least("one thread ÷ threads of their own", rate["one"] / rate["many"], "×", 0.5)


# ------------------------------------------------------------------------------------------------------------ hydrate


async def _hydrate(report: Report, folder: str, large: int, rounds: int) -> None:
    async with durable_storage(f"sqlite:///{folder}/threads.db") as storage:
        for thread, count in (("small", SMALL), ("large", large)):
            await _fill(storage, thread, count)

        async def nothing(ctx: DispatchContext, _helpers: Any) -> None:
            assert len(ctx.turn_messages) == LAST
            ctx.ack()

        runner = storage.runner(executor_callback=nothing, turn_input_pipeline=[hydrate(messages=Window(last=LAST))])
        times: dict[str, list[float]] = {"small": [], "large": []}
        for _ in range(3 * rounds):
            for thread, found in times.items():
                given = TurnInput(system_prompt="Look.", stash={"scope": TurnScope("bench", thread)})
                found.append(await _timed(partial(runner.run_result, given)))
    small, large_ = statistics.median(times["small"]), statistics.median(times["large"])
    report.note(f"hydrate the last {LAST} of {SMALL:,} messages", 1000 * small, "ms")
    report.note(f"of {large:,}", 1000 * large_, "ms")
    report.at_most("the second ÷ the first", large_ / small, "×", 2)


async def _fill(storage: DurableStorage, thread: str, count: int) -> None:
    given = TurnInput(system_prompt="Fill.", stash={"scope": TurnScope("bench", thread)})

    async def fill(ctx: DispatchContext, _helpers: Any) -> None:
        for number in range(min(500, count - ctx.iteration * 500)):
            name = f"{ctx.iteration}.{number}"
            await ctx.store_message(Message(id=name, role="user", content=TEXT, created_at=AT, updated_at=AT))
        if (ctx.iteration + 1) * 500 >= count:
            ctx.ack()

    runner = storage.runner(executor_callback=fill)
    result = await runner.run_result(given)
    assert result.ok, result.errors


# -------------------------------------------------------------------------------------------------------------- media


class _Film:
    """A video of this many megabytes, generated while it is read."""

    def __init__(self, megabytes: int) -> None:
        self.megabytes = megabytes

    async def stream(self) -> AsyncIterator[bytes]:
        for number in range(self.megabytes):
            yield number.to_bytes(4, "big") * (MEGABYTE // 4)
            await asyncio.sleep(0)

    async def byte_length(self) -> int:
        return self.megabytes * MEGABYTE


async def _media(report: Report, folder: str, megabytes: int) -> None:
    """Store and read a message with a large video, and measure the growth of memory."""
    async with durable_storage(f"sqlite:///{folder}/media.db") as storage:
        before = _peak()
        began = time.perf_counter()
        read = await _film(storage, megabytes)
        seconds = time.perf_counter() - began
        rise = (_peak() - before) / MEGABYTE
    assert read == megabytes * MEGABYTE
    report.note(f"{megabytes} MB of media, stored and read", 2 * megabytes / seconds, "MB/s")
    report.at_most("memory rises meanwhile by", rise, "MB", 64)


async def _film(storage: DurableStorage, megabytes: int) -> int:
    film = Media.user_attachment(kind="video", mime_type="video/mp4", filename="film.mp4", reader=_Film(megabytes))
    read = 0

    async def keep(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.store_message(Message(id="m", role="user", attachments=[film], created_at=AT, updated_at=AT))
        ctx.ack()

    async def look(ctx: DispatchContext, _helpers: Any) -> None:
        nonlocal read
        (message,) = await ctx.fetch_messages()
        async for piece in message.attachments[0].stream():
            read += len(piece)
        ctx.ack()

    given = TurnInput(system_prompt="Look.", stash={"scope": TurnScope("bench", "film")})
    for execute in (keep, look):
        runner = storage.runner(executor_callback=execute)
        result = await runner.run_result(given)
        assert result.ok, result.errors
    return read


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
