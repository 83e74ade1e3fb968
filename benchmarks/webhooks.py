"""Measures webhooks: deliveries beside a bare loop of POSTs, the latency from commit to POST, and a dead receiver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from statistics import median

import httpx2

from benchmarks.processes import ENVIRONMENT, program
from benchmarks.report import Report
from keelbolt.kernel import new_id, open_storage
from keelbolt.protocol.requests import PushConfig
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.tasks import Envelope, Sent, TaskContext, TaskEngine
from keelbolt.tasks.notes import WIRE_KINDS
from keelbolt.webhooks.configs import PushConfigs
from keelbolt.webhooks.delivery import Deliverer
from keelbolt.webhooks.post import TOTAL_SECONDS, Poster

RECEIVERS = 100
BEAT_SECONDS = 0.1
DEAD_SECONDS = 1.0  # time after which a receiver counts as dead; short, so that it is tried several times in a run


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a run."""

    rounds: int
    events: int  # per receiver and round
    streams: int  # concurrent, for the latencies
    beats: int  # chunks per stream


FULL = Counts(rounds=6, events=60, streams=10, beats=30)
QUICK = Counts(rounds=2, events=40, streams=5, beats=20)


async def run(url: str | None = None, *, quick: bool = False, progress: Callable[[str], None] = print) -> Report:
    """Return all figures of webhooks."""
    counts, report = QUICK if quick else FULL, Report()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            sinks(RECEIVERS) as sink,
            open_storage(url or f"sqlite:///{folder}/webhooks.db") as kernel,
            TaskEngine(kernel, stream) as engine,
        ):
            await _rate(report, engine, sink, counts, progress)
            await _latency(report, engine, sink, counts, progress)
    return report


async def stream(ctx: TaskContext) -> None:
    """Execute the message ``N SECONDS``: stream N chunks, with a pause before each."""
    count, seconds = ctx.user_text.split()
    for number in range(int(count)):
        if float(seconds):
            await asyncio.sleep(float(seconds))
        await ctx.emit_text_artifact("x" * 200, append=number > 0, last_chunk=number == int(count) - 1)
    await ctx.complete()


# ----------------------------------------------------------------------------------------------------------------- rate


async def _rate(
    report: Report, engine: TaskEngine, sink: Sinks, counts: Counts, progress: Callable[[str], None]
) -> None:
    """Measure all three in turn, several times, so that a slow period of the machine affects all."""
    rates: list[tuple[float, float, float]] = []
    for round_ in range(counts.rounds + 1):
        progress(f"deliveries, round {round_ + 1} of {counts.rounds + 1}")
        posts = await _posts(sink, counts.events), await _sockets(sink, counts.events)
        rates.append((*posts, await _deliveries(engine, sink, counts.events)))
    rates = rates[1:]  # the first round warms up
    posts_, sockets, ours = (median(each) for each in zip(*rates, strict=True))
    report.note(f"POSTs of a bare loop to {RECEIVERS} receivers", posts_, "per second")
    report.note("the same by sockets alone", sockets, "per second")
    report.note(f"deliveries to {RECEIVERS} receivers", ours, "per second")
    report.at_least("deliveries ÷ POSTs of a bare loop", median([rate[2] / rate[0] for rate in rates]), "×", 0.3)
    report.note("deliveries ÷ sockets alone", median([rate[2] / rate[1] for rate in rates]), "×")


async def _deliveries(engine: TaskEngine, sink: Sinks, events: int) -> float:
    """Create a task for each receiver with all its events; then deliver them."""
    sent = [await _send(engine, f"{events} 0", sink.url(number)) for number in range(RECEIVERS)]
    for each in sent:
        await engine.tasks.settled(each)
    total = RECEIVERS * (events + 3)  # submitted, working, completed
    started = time.monotonic()
    async with delivering(engine):
        times = await sink.arrivals(total)
    return total / (max(times.values()) - started)


async def _posts(sink: Sinks, events: int) -> float:
    """Post with an HTTP client and a loop for each receiver, the obvious way; signatures are made beforehand."""
    body = b'{"artifactUpdate":{"artifact":{"parts":[{"text":"%b"}]}}}' % (b"x" * 300)

    async def loop(number: int) -> None:
        async with httpx2.AsyncClient(verify=False, trust_env=False, timeout=60) as client:
            for each in range(events + 3):
                headers = {"content-type": "application/a2a+json", "webhook-id": f"post.{number}.{each}"}
                await client.post(sink.url(number), content=body, headers=headers)

    return await _timed(sink, loop, events)


async def _sockets(sink: Sinks, events: int) -> float:
    """Post over a plain socket for each receiver, without an HTTP library: the limit of receivers and loopback."""
    body = b'{"artifactUpdate":{"artifact":{"parts":[{"text":"%b"}]}}}' % (b"x" * 300)

    async def loop(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", sink.port(number))
        for each in range(events + 3):
            head = f"POST /hook HTTP/1.1\r\nhost: localhost\r\nwebhook-id: bare.{number}.{each}\r\n"
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    return await _timed(sink, loop, events)


async def _timed(sink: Sinks, loop: Callable[[int], Awaitable[None]], events: int) -> float:
    started = time.monotonic()
    await asyncio.gather(*(loop(number) for number in range(RECEIVERS)))
    total = RECEIVERS * (events + 3)
    times = await sink.arrivals(total)
    return total / (max(times.values()) - started)


# ------------------------------------------------------------------------------------------------------------- latency


async def _latency(
    report: Report, engine: TaskEngine, sink: Sinks, counts: Counts, progress: Callable[[str], None]
) -> None:
    """Measure latencies in turn beside tasks with a live receiver, with a dead receiver, and without a receiver."""
    alive, dead = sink.url(RECEIVERS - 1), sink.dead
    kinds: tuple[str | None, ...] = (alive, dead, None)
    times: dict[str | None, list[float]] = {kind: [] for kind in kinds}
    middles: dict[str | None, list[float]] = {kind: [] for kind in kinds}
    async with delivering(engine, seconds=DEAD_SECONDS):
        for round_ in range(counts.rounds + 1):
            progress(f"latencies, round {round_ + 1} of {counts.rounds + 1}")
            for number in range(len(kinds)):
                kind = kinds[(round_ + number) % len(kinds)]  # each kind is first equally often
                found = await _streams(engine, sink, counts, kind)
                if round_ > 0:
                    times[kind] += found
                    middles[kind].append(median(found))
    report.at_most("from the commit to the POST, p50", median(times[alive]) * 1000, "ms", 20)
    report.note("the same, p99", sorted(times[alive])[int(len(times[alive]) * 0.99)] * 1000, "ms")
    report.note("the same beside a dead receiver, p50", median(times[dead]) * 1000, "ms")
    for name, kind in (("with it alive", alive), ("without it", None)):
        ratio = median([one / other for one, other in zip(middles[dead], middles[kind], strict=True)])
        if kind is not None:
            report.at_most(f"latency beside a dead receiver ÷ {name}", ratio, "×", 1.05)
        else:
            report.note(f"latency beside a dead receiver ÷ {name}", ratio, "×")


async def _streams(engine: TaskEngine, sink: Sinks, counts: Counts, other: str | None) -> list[float]:
    """Return the event latencies of some streams, while as many other tasks stream, with or without a receiver."""
    committed: dict[str, float] = {}

    async def follow(sent: Sent) -> None:
        task_id = sent.task.task_id
        async with contextlib.aclosing(engine.tasks.follow(task_id, after=0)) as followed:
            async for event in followed:
                if getattr(event, "kind", "") in WIRE_KINDS:
                    committed[f"{task_id}:c:{event.seq}"] = time.monotonic()

    others = [await _send(engine, f"{counts.beats} {BEAT_SECONDS}", other) for _ in range(counts.streams)]
    sent = [await _send(engine, f"{counts.beats} {BEAT_SECONDS}", sink.url(number)) for number in range(counts.streams)]
    await asyncio.gather(*map(follow, sent))
    for each in others:
        await engine.tasks.settled(each)
        await PushConfigs().delete(each.task.scope, each.task.task_id, None)  # waits for the remaining deliveries
    times = await sink.arrivals(len(committed), set(committed))
    # The first events exist before the followers start.
    followed = [name for name in committed if int(name.rpartition(":")[2]) > 4]
    return [max(0.0, times[name] - committed[name]) for name in followed]


# ------------------------------------------------------------------------------------------------------------ the stage


@contextlib.asynccontextmanager
async def delivering(engine: TaskEngine, seconds: float = TOTAL_SECONDS) -> AsyncIterator[None]:
    deliverer = Deliverer(engine.store, Poster(loopback=True, seconds=seconds))
    await deliverer.start()
    try:
        yield
    finally:
        await deliverer.stop()


async def _send(engine: TaskEngine, text: str, url: str | None) -> Sent:
    configs = PushConfigs(loopback=True)
    push = configs.new(PushConfig(id="c", url=url, token=new_id())) if url is not None else None
    message = Message(message_id=new_id(), role=Role.user, parts=[Part(text=text)])
    return await engine.tasks.send(message, Envelope(push=push))


class Sinks:
    """The process of the receivers."""

    def __init__(self, process: asyncio.subprocess.Process, ports: list[int]) -> None:
        self._process = process
        self._ports = ports

    def port(self, number: int) -> int:
        return self._ports[number]

    def url(self, number: int) -> str:
        return f"http://127.0.0.1:{self._ports[number]}/hook"

    @property
    def dead(self) -> str:
        """A receiver that accepts every request and never responds."""
        return self.url(len(self._ports) - 1)

    async def arrivals(self, count: int, wanted: set[str] | None = None) -> dict[str, float]:
        """Return the time of the first arrival of each request, by its id."""
        found: dict[str, float] = {}
        async with asyncio.timeout(300):
            while len(found) < count:
                for name, at in await self._new():
                    if wanted is None or name in wanted:
                        found.setdefault(name, at)
                await asyncio.sleep(0.05)
        return found

    async def _new(self) -> list[tuple[str, float]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return [(name, at) for name, at in json.loads(await self._process.stdout.readline())]


@contextlib.asynccontextmanager
async def sinks(count: int) -> AsyncIterator[Sinks]:
    process = await asyncio.create_subprocess_exec(
        *program("webhook_sink", str(count)),
        env=ENVIRONMENT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**26,
    )
    try:
        assert process.stdout is not None
        yield Sinks(process, json.loads(await process.stdout.readline()))
    finally:
        process.kill()
        await process.wait()
