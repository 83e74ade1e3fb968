"""One campaign: start everything, let the nemesis work, wait until the store is quiet, check, report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keelbolt.errors import KeelboltError
from keelbolt.storage import open_storage
from keelbolt.tasks.families import QUEUE, WEBHOOKS
from tests.chaos.agent import LEASE_SECONDS, OWNERS
from tests.chaos.checker import check
from tests.chaos.engines import Engine, engine_of
from tests.chaos.final import Violation, read_store
from tests.chaos.history import Histories, History, read_histories
from tests.integration.webhooks.receiver import OK, Arrival, receiving

ROOT = Path(__file__).parents[2]
AGENTS = 3
STATE_USERS = 2
FRAMEWORK_USERS = 2
FAULT_SECONDS = 0.4  # between two faults, on average
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
    answered: list[tuple[float, int]] = field(default_factory=list)  # second, answers

    @property
    def violated(self) -> dict[str, list[Violation]]:
        return {promise: found for promise, found in self.violations.items() if found}


class Processes:
    """The processes of a campaign, forked by the zygote; a slot whose process is dead is filled again."""

    def __init__(self, folder: Path, bug: str) -> None:
        self._folder = folder
        self._bug = bug
        self._zygote: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self.slots: dict[str, list[str]] = {}  # name: program and arguments
        self.pids: dict[str, int] = {}
        self.stopped: set[int] = set()

    async def open(self) -> None:
        self._zygote = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.zygote",
            cwd=ROOT,
            env={**os.environ, "CHAOS_BUG": self._bug},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if "CHAOS_LOUD" in os.environ else asyncio.subprocess.DEVNULL,
        )

    async def close(self) -> None:
        for name in list(self.pids):
            self.kill(name)
        if self._zygote is not None:
            self._zygote.kill()
            await self._zygote.wait()

    async def fork(self, name: str, *more: str) -> int:
        """Start the process of a slot."""
        assert self._zygote is not None
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        async with self._lock:
            self._zygote.stdin.write(json.dumps([*self.slots[name], *more]).encode() + b"\n")
            line = await self._zygote.stdout.readline()
        assert line, "the zygote died"
        self.pids[name] = pid = int(line)
        return pid

    def alive(self, name: str) -> bool:
        pid = self.pids.get(name)
        return pid is not None and Path(f"/proc/{pid}").exists()

    def signal(self, name: str, number: signal.Signals) -> bool:
        with contextlib.suppress(ProcessLookupError):
            if self.alive(name):
                os.kill(self.pids[name], number)
                return True
        return False

    def kill(self, name: str) -> bool:
        return self.signal(name, signal.SIGKILL)

    def named(self, program: str) -> list[str]:
        return [name for name in self.slots if name.startswith(program) and self.alive(name)]


class Nemesis:
    """Draws faults from a seed."""

    def __init__(self, processes: Processes, engine: Engine, history: History, seed: int) -> None:
        self._processes = processes
        self._engine = engine
        self._history = history
        self._dice = random.Random(seed)
        self._paused: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        """Faults for so long; afterwards everything that was stopped goes on."""
        faults: dict[str, tuple[int, Any]] = {
            "kill agent": (10, lambda _: self._kill("agent")),
            "kill client": (1, lambda _: self._kill("client")),
            "kill state user": (3, lambda _: self._kill("state")),
            "kill framework user": (3, lambda _: self._kill("framework")),
            "kill eraser": (2, lambda _: self._kill("eraser")),
            "stop": (2, lambda _: self._stop()),
            "terminate": (2, lambda _: self._terminate()),
            **self._engine.faults(),
        }
        ends = time.monotonic() + seconds
        keeping = asyncio.create_task(self._keep())
        try:
            while time.monotonic() < ends:
                await asyncio.sleep(min(self._dice.expovariate(1 / FAULT_SECONDS), 5.0))
                name = self._dice.choices(list(faults), [weight for weight, _ in faults.values()])[0]
                self.counts[name] += 1
                if name in self._engine.faults():
                    self._history.note("fault", fault=name, pid=0)
                await faults[name][1](self._dice)
            for paused in list(self._paused):
                await paused
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await self.fill()

    async def _keep(self) -> None:
        while True:
            await self.fill()
            await asyncio.sleep(0.05)

    async def fill(self) -> None:
        """Start the processes that are dead."""
        for name in self._processes.slots:
            if not self._processes.alive(name):
                crash = self._engine.crash(self._dice) if name.startswith("agent") and self._dice.random() < 0.3 else ""
                if crash:
                    self.counts["crash point"] += 1
                await self._processes.fork(name, *([crash] if crash else []))

    async def _kill(self, program: str) -> None:
        if found := self._processes.named(program):
            name = self._dice.choice(found)
            pid = self._processes.pids[name]
            self._history.note("fault", fault="kill", pid=pid)
            self._processes.kill(name)

    async def _terminate(self) -> None:
        if found := self._processes.named("agent"):
            name = self._dice.choice(found)
            self._history.note("fault", fault="terminate", pid=self._processes.pids[name])
            self._processes.signal(name, signal.SIGTERM)

    async def _stop(self) -> None:
        """SIGSTOP beyond the lease, then SIGCONT: the process does not know that it lost its tasks."""
        if found := self._processes.named("agent"):
            name = self._dice.choice(found)
            pid = self._processes.pids[name]
            self._history.note("fault", fault="stop", pid=pid)
            self._processes.signal(name, signal.SIGSTOP)
            task = asyncio.create_task(self._continue(pid, LEASE_SECONDS * self._dice.uniform(0.5, 3.0)))
            self._paused.add(task)
            task.add_done_callback(self._paused.discard)

    async def _continue(self, pid: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def run_campaign(engine: str, *, seconds: float, seed: int, folder: Path, bug: str = "") -> Result:
    """Run one campaign in this folder, and check it."""
    folder.mkdir(parents=True, exist_ok=True)
    histories = folder / "histories"
    histories.mkdir()
    history = History(histories, "campaign")
    processes = Processes(folder, bug)
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


def takeovers(read: Histories) -> list[float]:
    """Seconds from the kill of a process to the next run of each task that it ran."""
    killed = {note["pid"]: note["at"] for note in read.notes["fault"] if note["fault"] == "kill"}
    last: dict[str, dict[str, Any]] = {}
    found = []
    for note in read.notes["run"]:
        before = last.get(note["task"])
        if before is not None:
            pid = int(before["by"].rpartition("-")[2])
            if pid in killed and before["at"] <= killed[pid] <= note["at"]:
                found.append(note["at"] - killed[pid])
        last[note["task"]] = note
    return sorted(found)


def per_second(read: Histories) -> list[tuple[float, int]]:
    """Answers in each second of the campaign."""
    ends = [asked.ended for found in read.requests.values() for asked in found if asked.answer is not None]
    if not ends:
        return []
    first = min(ends)
    counts = Counter(int(end - first) for end in ends)
    return [(float(second), counts[second]) for second in range(max(counts) + 1)]


def free_port() -> int:
    """A port that nothing uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
