"""Measures agents of apcore modules: the cost of a call beyond the executor, and the card.

One module that does nothing is called in three ways, and CPU time is compared:

- ``Executor.call_async`` in this process, with apcore unchanged. Four fifths of the time are JSON schemas of pydantic
  models, which apcore creates in each call.
- the same through an agent's views of modules, which create these schemas once.
- ``SendMessage`` to an agent in its own process: the CPU of that process, including HTTP and the executor.

The targets apply to the third minus the first: the cost of an agent over a direct call of apcore. The third minus the
second is reported, too: it is the cost of protocol, tasks and storage alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

from benchmarks.http_load import Rate, get_all, post_all
from benchmarks.modules import INPUT, SKILL, call, executor, peer_found
from benchmarks.processes import Served
from benchmarks.report import Report
from benchmarks.server import CARD, CONNECTIONS, served
from keelbolt.apcore.views import look_through_views

ROUNDS = 4
MOST = {"memory": 1.0, "durable": 1.5}  # ms of CPU beyond the executor's own
MOST_CARD = 0.2  # ms of CPU
TIMES = 5.0  # ratio to the requests per second of apcore-a2a


async def run(url: str | None = None, *, quick: bool = False, progress: Callable[[str], None] = print) -> Report:
    """Return all figures of modules."""
    report = Report()
    each = 60 if quick else 300
    progress("the executor alone")
    count = 500 if quick else 3000
    raw = await _alone(count, views=False)
    report.note("Executor.call_async, as apcore comes, CPU", raw, "ms each")
    inside = await _alone(count, views=True)
    report.note("Executor.call_async, as an agent calls it, CPU", inside, "ms each")
    with tempfile.TemporaryDirectory() as folder:
        for name, storage in (("memory", "memory:"), ("durable", url or f"sqlite:///{folder}/agent.db")):
            await _calls(report, name, storage, (raw, inside), each, progress)
    return report


async def _alone(count: int, *, views: bool) -> float:
    """Return the milliseconds of CPU of a call without an agent."""
    alone = executor()
    if views:
        look_through_views(alone)
    for _ in range(count // 10):
        await alone.call_async(SKILL, dict(INPUT))
    began = time.process_time()
    for _ in range(count):
        await alone.call_async(SKILL, dict(INPUT))
    return (time.process_time() - began) / count * 1000


async def _calls(
    report: Report,
    name: str,
    url: str,
    executors: tuple[float, float],
    each: int,
    progress: Callable[[str], None],
) -> None:
    async with served("modules", url) as agent:
        rates, cpu = await _measured(agent, name, each, progress, text_only=False)
        ours = sum(rate.per_second for rate in rates) / len(rates)
        report.note(f"SendMessage to a module, {name}", ours, "per second")
        report.note(f"SendMessage to a module, {name}, p99", max(rate.p99 for rate in rates) * 1000, "ms")
        report.note(f"SendMessage to a module, {name}, CPU", cpu, "ms each")
        raw, inside = executors
        report.at_most(f"more than the executor as apcore comes, {name}, CPU", cpu - raw, "ms each", MOST[name])
        report.note(f"protocol, tasks and storage alone, {name}, CPU", cpu - inside, "ms each")
        if name == "memory":
            before = agent.cpu_seconds()
            await get_all(agent.port, CARD, connections=8, each=each * 4)
            report.at_most("the card, CPU", (agent.cpu_seconds() - before) / (32 * each) * 1000, "ms each", MOST_CARD)
    if name == "memory" and peer_found():
        async with served("apcore-a2a", url) as other:
            rates, cpu = await _measured(other, "apcore-a2a", max(10, each // 6), progress, text_only=True)
        theirs = sum(rate.per_second for rate in rates) / len(rates)
        report.note("SendMessage to apcore-a2a, memory", theirs, "per second")
        report.note("SendMessage to apcore-a2a, memory, CPU", cpu, "ms each")
        report.at_least("ours ÷ apcore-a2a, memory", ours / theirs, "×", TIMES)


async def _measured(
    agent: Served, name: str, each: int, progress: Callable[[str], None], *, text_only: bool
) -> tuple[list[Rate], float]:
    """Return rates, and milliseconds of CPU for each call; the first round warms up."""
    rates: list[Rate] = []
    cpu = 0.0
    for round_ in range(ROUNDS):
        progress(f"SendMessage, {name}, round {round_ + 1} of {ROUNDS}")

        def body(connection: int, number: int, tag: int = round_) -> bytes:
            return call(f"{tag}-{connection}-{number}", text_only=text_only)

        before = agent.cpu_seconds()
        rate = await post_all(agent.port, body, connections=CONNECTIONS, each=each)
        if round_ > 0:
            rates.append(rate)
            cpu += agent.cpu_seconds() - before
    return rates, cpu / ((ROUNDS - 1) * CONNECTIONS * each) * 1000
