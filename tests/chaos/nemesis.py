"""The processes of a campaign, and the faults that are drawn from its seed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from tests.chaos import wall_clock
from tests.chaos.agent import LEASE_SECONDS
from tests.chaos.engines import Engine, Fault
from tests.chaos.history import PROGRESS, History

ROOT = Path(__file__).parents[2]
PROCESS_FAULT_SECONDS = 0.3  # between two faults of processes, on average
ENGINE_FAULT_SECONDS = 0.6  # between the end of a fault of the store and the next one
ANSWERS_PER_PROCESS_FAULT = 3  # fewer faults on a busy machine, so that work progresses between them
ANSWERS_PER_ENGINE_FAULT = 20
PROGRESS_SECONDS = 5.0  # the longest wait for these answers
OTHERS_PER_KILL = 0.3  # faults of another kind that a campaign with a number of kills has
START_SECONDS = 60.0  # the longest wait for the first answers
JUMP_SECONDS = 7200  # of the wall clock, forward or back


class Processes:
    """The processes of a campaign, forked by the zygote; a slot whose process is dead is filled again."""

    def __init__(self, histories: Path, bug: str, *, slow_from: float | None = None) -> None:
        self._histories = histories
        self._bug = bug
        self._slow_from = slow_from  # in a soak
        self._zygote: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self.clock = histories.parent / "clock"  # the file of their wall clock
        self.slots: dict[str, list[str]] = {}  # name: program and arguments
        self.pids: dict[str, int] = {}

    async def open(self) -> None:
        """Start the zygote."""
        wall_clock.create(self.clock)
        self._zygote = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.zygote",
            str(self.clock),
            cwd=ROOT,
            env={**os.environ, "CHAOS_BUG": self._bug}
            | ({"CHAOS_SOAK": str(self._slow_from)} if self._slow_from else {}),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if "CHAOS_LOUD" in os.environ else asyncio.subprocess.DEVNULL,
        )
        assert self._zygote.stdout is not None
        assert await self._zygote.stdout.readline(), "the zygote died"

    @property
    def zygote(self) -> int:
        """The pid of the zygote."""
        assert self._zygote is not None
        return self._zygote.pid

    async def close(self) -> None:
        """Kill all of them."""
        for name in list(self.pids):
            self.kill(name)
        if self._zygote is not None:
            with contextlib.suppress(ProcessLookupError):
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
        """Return the running processes of a program."""
        return [name for name in self.slots if name.startswith(program) and self.alive(name)]

    def at_work(self, program: str) -> list[str]:
        """Return the running processes that have written to their histories."""
        return [name for name in self.named(program) if self._size(program, self.pids[name])]

    def answered(self) -> int:
        """Return the number of responses so far."""
        file = self._histories / PROGRESS
        return file.stat().st_size if file.exists() else 0

    def _size(self, program: str, pid: int) -> int:
        history = self._histories / f"{program}-{pid}.jsonl"
        return history.stat().st_size if history.exists() else 0


class Nemesis:
    """Draws faults of processes and of the store from a seed, concurrently."""

    def __init__(self, processes: Processes, engine: Engine, history: History, seed: int) -> None:
        self._processes = processes
        self._engine = engine
        self._history = history
        self._dice = random.Random(seed)
        self._crashes = random.Random(seed + 1)
        self._paused: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    @property
    def kills(self) -> int:
        """Return the number of killed processes."""
        return sum(count for fault, count in self.counts.items() if fault.startswith("kill ") and "server" not in fault)

    def _over(self, ends: float, kills: int) -> bool:
        others = sum(self.counts.values()) - self.kills
        return time.monotonic() > ends or (0 < kills <= self.kills and others >= OTHERS_PER_KILL * kills)

    async def run(self, seconds: float, kills: int = 0) -> None:
        """Cause faults for this time, or until this many kills; then resume all stopped processes."""
        of_processes: dict[str, tuple[int, Callable[[], Awaitable[bool]]]] = {
            "kill agent": (10, lambda: self._kill("agent")),
            "kill client": (1, lambda: self._kill("client")),
            "kill state user": (3, lambda: self._kill("state")),
            "kill framework user": (3, lambda: self._kill("framework")),
            "kill kernel user": (3, lambda: self._kill("kernel")),
            "stop": (3, self._stop),
            "terminate": (2, self._terminate),
        }
        keeping = asyncio.create_task(self._keep())
        try:
            await self._progress(ANSWERS_PER_ENGINE_FAULT, START_SECONDS)
            ends = time.monotonic() + seconds
            async with asyncio.TaskGroup() as both:
                both.create_task(self._fault_processes(of_processes, ends, kills))
                both.create_task(self._fault_store(ends, kills))
            for paused in list(self._paused):
                await paused
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await self.fill()

    async def _fault_processes(
        self, faults: Mapping[str, tuple[int, Callable[[], Awaitable[bool]]]], ends: float, kills: int
    ) -> None:
        while not self._over(ends, kills):
            before = self._processes.answered()
            await asyncio.sleep(min(self._dice.expovariate(1 / PROCESS_FAULT_SECONDS), 5.0))
            await self._progress(before + ANSWERS_PER_PROCESS_FAULT)
            name = self._dice.choices(list(faults), [weight for weight, _ in faults.values()])[0]
            self.counts[name] += await faults[name][1]()

    async def _fault_store(self, ends: float, kills: int) -> None:
        dice = random.Random(self._dice.random())
        faults: dict[str, tuple[int, Fault]] = {**self._engine.faults(), "clock jump": (2, self._jump)}
        while not self._over(ends, kills):
            before = self._processes.answered()
            await asyncio.sleep(dice.uniform(0, 2 * ENGINE_FAULT_SECONDS))
            await self._progress(before + ANSWERS_PER_ENGINE_FAULT)
            name = dice.choices(list(faults), [weight for weight, _ in faults.values()])[0]
            self.counts[name] += 1
            self._history.note("fault", fault=name, pid=0)
            await faults[name][1](dice)
            self._history.note("over", fault=name)

    async def _progress(self, answers: int, seconds: float = PROGRESS_SECONDS) -> None:
        """Wait until this many responses in total."""
        ends = time.monotonic() + seconds
        while self._processes.answered() < answers and time.monotonic() < ends:  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.02)

    async def _keep(self) -> None:
        while True:
            await self.fill()
            await asyncio.sleep(0.05)

    async def fill(self) -> None:
        """Restart dead processes."""
        for name, arguments in list(self._processes.slots.items()):
            if not self._processes.alive(name):
                if name in self._processes.pids:
                    self._history.note("died", pid=self._processes.pids[name])
                faulty = name.startswith("agent") and "soak" not in arguments and self._crashes.random() < 0.3
                crash = self._engine.crash(self._crashes) if faulty else ""
                if crash:
                    self.counts["fsync error" if crash.startswith("fsync") else "crash point"] += 1
                await self._processes.fork(name, *([crash] if crash else []))

    def _victim(self, program: str) -> str | None:
        """Return a working process; sometimes one that may have just started."""
        at_work = self._processes.at_work(program)
        found = self._processes.named(program) if self._dice.random() < 0.2 else at_work
        return self._dice.choice(found) if found else None

    async def _kill(self, program: str) -> bool:
        name = self._victim(program)
        if name is None:
            return False
        self._history.note("fault", fault="kill", pid=self._processes.pids[name])
        return self._processes.kill(name)

    async def _terminate(self) -> bool:
        name = self._victim("agent")
        if name is None:
            return False
        self._history.note("fault", fault="terminate", pid=self._processes.pids[name])
        return self._processes.signal(name, signal.SIGTERM)

    async def _stop(self) -> bool:
        """SIGSTOP beyond the lease, then SIGCONT: the process is not aware that it lost its tasks."""
        name = self._victim(self._dice.choices(("agent", "state"), (2, 1))[0])
        if name is None:
            return False
        pid = self._processes.pids[name]
        self._history.note("fault", fault="stop", pid=pid)
        self._processes.signal(name, signal.SIGSTOP)
        task = asyncio.create_task(self._continue(pid, LEASE_SECONDS * self._dice.uniform(0.5, 3.0)))
        self._paused.add(task)
        task.add_done_callback(self._paused.discard)
        return True

    async def _continue(self, pid: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            self._history.note("continued", pid=pid)

    async def _jump(self, dice: random.Random) -> None:
        """Make the wall clock of all processes jump; the servers of the store keep theirs."""
        wall_clock.jump(self._processes.clock, dice.uniform(-JUMP_SECONDS, JUMP_SECONDS))
