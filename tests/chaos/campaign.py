"""One campaign: start everything, let the nemesis work, wait until the store is quiet, check, report."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from keelbolt.errors import KeelboltError
from keelbolt.storage import open_storage
from keelbolt.tasks.families import QUEUE, WEBHOOKS
from tests.chaos.agent import OWNERS
from tests.chaos.checker import check
from tests.chaos.engines import Engine, engine_of
from tests.chaos.figures import per_second, recoveries, takeovers
from tests.chaos.final import Violation, read_store
from tests.chaos.history import History, read_histories
from tests.chaos.nemesis import Nemesis, Processes
from tests.integration.webhooks.receiver import OK, Arrival, receiving

AGENTS = 3
STATE_USERS = 2
FRAMEWORK_USERS = 2
QUIET_SECONDS = 90.0  # in which every task must end after the last fault


@dataclass(slots=True)
class Result:
    """What came of a campaign."""

    engine: str
    seed: int
    bug: str
    seconds: float
    faults: Counter[str]
    operations: dict[str, int]
    violations: dict[str, list[Violation]]
    quiet: float | None  # seconds from the last fault until nothing was left to do
    takeovers: list[float] = field(default_factory=list)
    recoveries: dict[str, list[float]] = field(default_factory=dict)  # by fault
    answered: list[tuple[float, int]] = field(default_factory=list)  # second, answers

    @property
    def violated(self) -> dict[str, list[Violation]]:
        return {promise: found for promise, found in self.violations.items() if found}


async def run_campaign(engine: str, *, seconds: float, seed: int, folder: Path, bug: str = "") -> Result:
    """Run one campaign in this folder, and check it."""
    folder.mkdir(parents=True, exist_ok=True)
    histories = folder / "histories"
    histories.mkdir()
    history = History(histories, "campaign")
    processes = Processes(histories, bug)
    began = time.monotonic()
    async with engine_of(engine, folder) as store, receiving() as receiver:

        async def arrived(arrival: Arrival, _writer: asyncio.StreamWriter) -> bytes:
            history.note("arrival", task=arrival.id.split(":")[0], seq=arrival.seq)
            return OK

        receiver.answering = arrived
        async with open_storage(store.direct):
            pass  # the schema is there before several processes want it
        ports = [free_port() for _ in range(AGENTS)]
        for number, port in enumerate(ports):
            processes.slots[f"agent-{number}"] = ["agent", store.url, str(histories), str(port)]
        hook = f"http://127.0.0.1:{receiver.port}"
        for number, owner in enumerate(OWNERS):
            arguments = [str(histories), ",".join(map(str, ports)), owner, str(seed * 100 + number), hook]
            processes.slots[f"client-{number}"] = ["client", *arguments]
        for number in range(STATE_USERS):
            processes.slots[f"state-{number}"] = ["state", store.url, str(histories), str(seed * 100 + number)]
        for number in range(FRAMEWORK_USERS):
            processes.slots[f"framework-{number}"] = ["framework", store.url, str(histories), str(seed * 100 + number)]
        processes.slots["eraser-0"] = ["eraser", store.url, str(histories), str(seed)]
        nemesis = Nemesis(processes, store, history, seed)
        try:
            await processes.open()
            await nemesis.run(seconds)
            for name in [name for name in processes.slots if not name.startswith("agent")]:
                del processes.slots[name]
                processes.kill(name)
            quiet = await wait_until_quiet(store, processes, nemesis)
        finally:
            await processes.close()
        read = read_histories(histories)
        try:
            async with open_storage(store.direct) as kernel:
                violations = await check(read, await read_store(kernel, store.direct))
        except (KeelboltError, LookupError) as error:  # damaged
            violations = {"the_store_can_be_read": [(f"{type(error).__name__}: {error}", [])]}
        if any(violations.values()) and engine == "sqlite" and store.disk is not None:
            without = shutil.ignore_patterns("*-hints")  # sockets
            shutil.copytree(store.disk.place, folder / "store", ignore=without)  # the disk itself does not stay
    if quiet is None:
        violations["every_task_ends"] = [(f"work was left {QUIET_SECONDS:g} s after the last fault", [])]
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
    )


async def wait_until_quiet(store: Engine, processes: Processes, nemesis: Nemesis) -> float | None:
    """How long it takes until no task and no webhook is left to do; None: too long.

    An agent may still read the request of a dead client. So the agents are killed, and nothing may be left then.
    """
    began = time.monotonic()
    while time.monotonic() - began < QUIET_SECONDS:
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
    """How many work items of tasks and webhooks are not done."""
    try:
        async with open_storage(store.direct) as kernel:
            work = (await kernel.stats()).work
    except KeelboltError:  # the server starts again
        return 1
    return sum(states["waiting"] + states["held"] for name, states in work.items() if name in (QUEUE, WEBHOOKS))


def free_port() -> int:
    """A port that nothing uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
