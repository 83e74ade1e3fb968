"""One campaign: start all processes, run the nemesis, wait until the store is quiet, check, report."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from keelbolt.errors import KeelboltError
from keelbolt.kernel import open_storage
from keelbolt.tasks.families import QUEUE, WEBHOOKS
from tests.chaos.agent import OWNERS
from tests.chaos.checker import check
from tests.chaos.engines import Engine, engine_of
from tests.chaos.figures import per_second, recoveries, takeovers
from tests.chaos.final import Violation, read_store
from tests.chaos.history import History, read_histories
from tests.chaos.nemesis import Nemesis, Processes
from tests.chaos.soak import BUSY, Sample, nothing_grows, shorten_lifetimes, watch, with_latency
from tests.integration.webhooks.receiver import OK, Arrival, answer, receiving

AGENTS = 3
STATE_USERS = 2
FRAMEWORK_USERS = 2
KERNEL_USERS = 2
RECEIVED = 0.97  # share of webhooks that the receiver accepts at the first attempt
QUIET_SECONDS = 240.0  # a busy machine needs long for the remaining work


@dataclass(slots=True)
class Result:
    """The result of a campaign."""

    engine: str
    seed: int
    bug: str
    seconds: float
    faults: Counter[str]
    operations: dict[str, int]
    violations: dict[str, list[Violation]]
    quiet: float | None  # seconds from the last fault until no work was left
    takeovers: dict[str, list[float]] = field(default_factory=dict)  # by kind
    recoveries: dict[str, list[float]] = field(default_factory=dict)  # by fault
    answered: list[tuple[float, int]] = field(default_factory=list)  # second, answers
    samples: list[Sample] = field(default_factory=list)  # of a soak

    @property
    def violated(self) -> dict[str, list[Violation]]:
        return {promise: found for promise, found in self.violations.items() if found}


async def run_campaign(
    engine: str,
    *,
    seconds: float,
    seed: int,
    folder: Path,
    bug: str = "",
    kills: int = 0,
    soak: bool = False,
    quiet_seconds: float = QUIET_SECONDS,
) -> Result:
    """Run one campaign in this folder, and check it. With ``kills`` it ends after this many kills.

    All work must end within ``quiet_seconds`` after the last fault.
    """
    folder.mkdir(parents=True, exist_ok=True)
    histories = folder / "histories"
    histories.mkdir()
    history = History(histories, "campaign")
    began, dice = time.monotonic(), random.Random(seed)
    processes = Processes(histories, bug, slow_from=began + BUSY * seconds if soak else None)
    samples: list[Sample] = []
    if soak:
        shorten_lifetimes()  # all clients of a Valkey must have the same functions
    async with engine_of(engine, folder) as store, receiving() as receiver:

        async def arrived(arrival: Arrival, _writer: asyncio.StreamWriter) -> bytes:
            history.note("arrival", task=arrival.id.split(":")[0], seq=arrival.seq)
            return OK if dice.random() < RECEIVED else answer(503)

        receiver.answering = arrived
        async with open_storage(store.direct):
            pass  # creates the schema before several processes start
        processes.slots = slots(store.url, histories, seed, receiver.port, soak=soak)
        nemesis = Nemesis(processes, store, history, seed)
        try:
            await processes.open()
            if soak:
                await nemesis.fill()
                async with open_storage(store.direct) as kernel:
                    samples = await watch(processes, store, kernel, seconds)
            else:
                await nemesis.run(seconds, kills)
            for name in [name for name in processes.slots if not name.startswith("agent")]:
                del processes.slots[name]
                processes.kill(name)
            quiet = await wait_until_quiet(store, processes, nemesis, quiet_seconds)
        finally:
            await processes.close()
        read = read_histories(histories)
        try:
            async with open_storage(store.direct) as kernel:
                final = await read_store(kernel, store.direct)
                violations = await check(read, final, swept=soak)
        except (KeelboltError, LookupError) as error:  # damaged
            violations = {"the_store_can_be_read": [(f"{type(error).__name__}: {error}", [])]}
        if any(violations.values()) and engine == "sqlite" and store.disk is not None:
            without = shutil.ignore_patterns("*-hints")  # sockets
            shutil.copytree(store.disk.place, folder / "store", ignore=without)  # the disk itself is removed
    if quiet is None:
        violations["every_task_ends"] = [(f"work was left {quiet_seconds:g} s after the last fault", [])]
    if soak:
        violations["nothing_grows"] = list(nothing_grows(with_latency(samples, read)))
    return Result(
        engine,
        seed,
        bug,
        time.monotonic() - began,
        nemesis.counts,
        read.count(),
        violations,
        quiet,
        takeovers(read),
        recoveries(read),
        per_second(read),
        samples,
    )


def slots(url: str, histories: Path, seed: int, hook_port: int, *, soak: bool) -> dict[str, list[str]]:
    """The processes: name, program and arguments."""
    found: dict[str, list[str]] = {}
    ports = [free_port() for _ in range(AGENTS)]
    for number, port in enumerate(ports):
        found[f"agent-{number}"] = ["agent", url, str(histories), str(port), *(["soak"] if soak else [])]
    hook = f"http://127.0.0.1:{hook_port}"
    for number, owner in enumerate(OWNERS):
        arguments = [str(histories), ",".join(map(str, ports)), owner, str(seed * 100 + number), hook]
        found[f"client-{number}"] = ["client", *arguments]
    for number in range(STATE_USERS):
        found[f"state-{number}"] = ["state", url, str(histories), str(seed * 100 + number)]
    for number in range(FRAMEWORK_USERS):
        found[f"framework-{number}"] = ["framework", url, str(histories), str(seed * 100 + number)]
    if soak:
        found["sweeper-0"] = ["sweeper", url, str(histories)]
    else:
        for number in range(KERNEL_USERS):
            found[f"kernel-{number}"] = ["kernel", url, str(histories), str(seed * 100 + number)]
    return found


async def wait_until_quiet(store: Engine, processes: Processes, nemesis: Nemesis, seconds: float) -> float | None:
    """Return the seconds until no task and no webhook is left to do; None: too long.

    An agent may still read the request of a dead client. So the agents are killed, and afterwards no work may be left.
    """
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        await nemesis.fill()
        await asyncio.sleep(0.5)
        if await _left(store):
            continue
        for name in processes.named("agent"):
            processes.kill(name)
        if not await _left(store):
            return time.monotonic() - began
    return None


async def _left(store: Engine) -> int:
    """Return the number of unfinished work items of tasks and webhooks."""
    try:
        async with open_storage(store.direct) as kernel:
            work = (await kernel.stats()).work
    except KeelboltError:  # the server restarts
        return 1
    return sum(states["waiting"] + states["held"] for name, states in work.items() if name in (QUEUE, WEBHOOKS))


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
