"""An echo through the engine, compared with the kernel and the codec alone for the same bytes."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from benchmarks.renamed import recorded_commits, renamed
from benchmarks.report import Report
from keelbolt.auth.principal import ANONYMOUS
from keelbolt.kernel import Kernel, Operation, new_id, open_storage
from keelbolt.protocol import jsonrpc, v1
from keelbolt.protocol.operations import Operation as Call
from keelbolt.protocol.types import Task
from keelbolt.tasks import Message, Part, Role, TaskContext, TaskEngine
from keelbolt.tasks.families import FAMILIES, QUEUE

IN_FLIGHT = 64
TEXT = "Please tell me which of the three offers is the cheapest one, and why the others cost more than it does."
WORKER = "bench"


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(f"You said: {ctx.user_text}")


def message() -> Message:
    return Message(message_id=new_id(), role=Role.user, parts=[Part(text=TEXT)])


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds per call: wall clock, and CPU of this process."""

    clock: float
    cpu: float


async def at_once(count: int, one: Callable[[int], Awaitable[None]]) -> Took:
    """Call the function ``count`` times, with 64 calls in flight."""
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await one(number)

    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return Took((time.perf_counter() - start) / count, (time.process_time() - cpu) / count)


async def through_engine(engine: TaskEngine, count: int) -> Took:
    messages = [message() for _ in range(count)]

    async def one(number: int) -> None:
        await engine.tasks.settled(await engine.tasks.send(messages[number]))

    return await at_once(count, one)


# ---------------------------------------------------------------------------------------------------- the kernel alone


async def the_two_commits(kernel: Kernel) -> tuple[dict[str, str], tuple[Operation, ...], tuple[Operation, ...]]:
    """Return the commits of the engine for one echo, and the names in them."""
    async with TaskEngine(kernel, echo) as engine:
        sent_message = message()
        with recorded_commits(kernel) as recorded:
            sent = await engine.tasks.send(sent_message)
            await engine.tasks.settled(sent)
        record = sent.task.record
        names = {"message": sent_message.message_id, "task": record.task_id, "context": record.context_id}
        assert engine.runner is not None
        create, complete = (renamed(each, {engine.runner.name: WORKER}) for each in recorded)
    return names, create, complete


async def by_kernel(kernel: Kernel, template: tuple[dict[str, str], Any, Any], count: int) -> Took:
    """Commit the same two batches under new names, which are created before the clock starts."""
    names, create, complete = template
    await kernel.heartbeat(WORKER, lease_seconds=600)
    prepared = []
    for _ in range(count):
        new = {old: new_id() for old in names.values()}
        prepared.append((new[names["task"]], renamed(create, new), renamed(complete, new)))

    async def one(number: int) -> None:
        task_id, first, second = prepared[number]
        receipt = await kernel.commit(ANONYMOUS.partition, *first)
        fence = receipt.fence(QUEUE, task_id)
        await kernel.commit(
            ANONYMOUS.partition,
            *[replace(each, fence=fence) if hasattr(each, "fence") else each for each in second],
        )

    return await at_once(count, one)


async def measure_rate(report: Report, folder: str, count: int, rounds: int) -> None:
    """Measure the engine and the kernel in turns, each on a new file."""
    tasks, commits = [], []
    async with open_storage(f"sqlite:///{folder}/echo.db") as kernel:
        template = await the_two_commits(kernel)
    for number in range(rounds):
        async with (
            open_storage(f"sqlite:///{folder}/echo-engine-{number}.db") as kernel,
            TaskEngine(kernel, echo) as engine,
        ):
            await through_engine(engine, IN_FLIGHT * 2)
            tasks.append(1 / (await through_engine(engine, count)).clock)
        async with open_storage(f"sqlite:///{folder}/echo-kernel-{number}.db", declare=FAMILIES) as kernel:
            await by_kernel(kernel, template, IN_FLIGHT * 2)
            commits.append(1 / (await by_kernel(kernel, template, count)).clock)
    rate, alone = statistics.median(tasks), statistics.median(commits)
    report.note("echo tasks, durable, 64 in flight", rate, "/s")
    report.note("the same two commits by the kernel alone", alone, "/s")
    report.at_least("echo tasks ÷ their commits by the kernel alone", rate / alone, "×", 0.4)


# ----------------------------------------------------------------------------------------------------- the codec alone


async def measure_cpu(report: Report, count: int, rounds: int) -> None:
    """Measure the CPU of an echo on the memory engine, compared with decoding its request and encoding its response."""
    engine_times, kernel_times, codec_times = [], [], []
    async with open_storage("memory:") as kernel:
        template = await the_two_commits(kernel)
    async with (
        open_storage("memory:") as kernel,
        TaskEngine(kernel, echo) as engine,
        open_storage("memory:", declare=FAMILIES) as alone,
    ):
        sent = await engine.tasks.send(message())
        answer = await engine.store.task(await engine.tasks.settled(sent))
        request = _request(sent.task.record.turn.message_id)
        for _ in range(rounds):
            engine_times.append((await through_engine(engine, count)).cpu)
            kernel_times.append((await by_kernel(alone, template, count)).cpu)
            start = time.process_time()
            for _ in range(count):
                _codec(request, answer)
            codec_times.append((time.process_time() - start) / count)
    whole, commits, codec = map(statistics.median, (engine_times, kernel_times, codec_times))
    report.note("CPU of an echo task in memory", 1e6 * whole, "µs")
    report.note("CPU of its two commits alone", 1e6 * commits, "µs")
    report.note("CPU of decoding its request and encoding its response", 1e6 * codec, "µs")
    report.at_most("CPU of an echo task ÷ of its codec", whole / codec, "×", 4)


def _request(message_id: str) -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":'
        b'{"messageId":"%b","role":"ROLE_USER","parts":[{"text":"%b"}]}}}' % (message_id.encode(), TEXT.encode())
    )


def _codec(request: bytes, answer: Task) -> bytes:
    call = jsonrpc.parse(request)
    v1.decode(Call.send_message, call.params)
    return jsonrpc.result(call.id, v1.sent_task(answer))
