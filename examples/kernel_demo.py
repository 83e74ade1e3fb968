"""Several processes share one SQLite file; one of them is killed with SIGKILL; nothing is lost.

Four workers claim three jobs and write each step of a job into one log, two followers tail it. In the middle one
worker is killed. Its lease expires, the idle worker takes over its job and continues after the last *committed* step:
the step's log entry and the job's progress are one commit, so that neither exists without the other.

    python examples/kernel_demo.py --seconds 8

The first half is the program itself; the second half starts, kills and verifies its processes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from keelbolt.errors import CommitRefused
from keelbolt.kernel import Absent, Append, Claim, Collection, Draft, Enqueue, Entry, Kernel, Put, open_storage

PARTITION = "demo"
FAMILIES = (Collection("progress"), Collection("control"))
JOBS = ("apples", "pears", "plums")
LEASE_SECONDS = 1.0


# ------------------------------------------------------------------------------------------------- a worker's process


async def worker(url: str, name: str) -> None:
    """Claim and run jobs until the stop record exists."""
    async with open_storage(url, declare=FAMILIES) as kernel:
        heart = asyncio.create_task(beat(kernel, name))
        while not await kernel.get(PARTITION, "control", "stop"):
            for claim in await kernel.claim("jobs", name, lease_seconds=LEASE_SECONDS):
                await steps(kernel, claim)
            await asyncio.sleep(0.1)
        heart.cancel()


async def steps(kernel: Kernel, claim: Claim) -> None:
    """Run the steps of a job, starting after the last step of the previous holder."""
    progress = await kernel.get(PARTITION, "progress", claim.key)
    step = int(progress.body) if progress else 0
    tell("claim", claim.key, claim.fence, step)
    while True:
        step += 1
        try:
            receipt = await kernel.commit(
                PARTITION,
                claim.fenced(),  # check: this worker still holds the job
                Absent("control", "stop"),  # check: no stop was requested
                Put("progress", claim.key, str(step).encode()),
                Append("journal", "all", (Draft("step", f"{claim.key} {step}".encode()),)),
            )
        except CommitRefused as refusal:
            if refusal.reason == "absent":
                await kernel.commit(PARTITION, claim.complete())
            return
        tell("ack", receipt.seqs("journal", "all")[0], claim.key, step)


async def beat(kernel: Kernel, name: str) -> None:
    """Renew the lease of this worker's claims."""
    while True:
        await asyncio.sleep(LEASE_SECONDS / 4)
        await kernel.heartbeat(name, lease_seconds=LEASE_SECONDS)


# ----------------------------------------------------------------------------------------------- a follower's process


async def follower(url: str) -> None:
    """Read each entry as soon as it is committed by any process."""
    digest = hashlib.sha256()
    async with open_storage(url, declare=FAMILIES) as kernel:
        async for entry in kernel.tail(PARTITION, "journal", "all", after=0):
            digest.update(line(entry))
            tell("seen", entry.seq)
            if entry.kind == "end":
                break
    tell("digest", digest.hexdigest())


def line(entry: Entry) -> bytes:
    return b"%d %s %s\n" % (entry.seq, entry.kind.encode(), entry.data)


def tell(*words: object) -> None:
    """Report to the parent process without delay."""
    print(*words, flush=True)


# -------------------------------------------------------------------------- the process that starts, kills and verifies


@dataclass
class Member:
    """The reports of one child process: the same facts that a client would have."""

    name: str
    process: asyncio.subprocess.Process
    state: str = "starting"
    job: str = ""
    seq: int = 0
    acks: dict[int, str] = field(default_factory=dict)
    digest: str = ""
    _rates: deque[tuple[float, int]] = field(default_factory=lambda: deque([(time.monotonic(), 0)], maxlen=9))

    @property
    def rate(self) -> float:
        count = len(self.acks) or self.seq
        self._rates.append((time.monotonic(), count))
        (start, before), (now, _) = self._rates[0], self._rates[-1]
        return (count - before) / max(now - start, 0.001)


class Show:
    """Starts the child processes, reads their reports, and prints them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.console = Console(highlight=False)
        self.members: list[Member] = []
        self.notes: list[str] = []
        self.started = time.monotonic()
        self.killed: Member | None = None
        self.at_work = asyncio.Event()
        self.taken_over = asyncio.Event()
        self._listeners: list[asyncio.Task[None]] = []

    async def start(self, role: str, name: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--role", role, "--url", self.url, "--name", name, stdout=asyncio.subprocess.PIPE
        )
        member = Member(name, process)
        self.members.append(member)
        self._listeners.append(asyncio.create_task(self._listen(member)))

    async def _listen(self, member: Member) -> None:
        assert member.process.stdout is not None
        async for said in member.process.stdout:
            match said.decode().split():
                case ["ack", seq, job, step]:
                    member.seq = int(seq)
                    member.acks[member.seq] = f"{job} {step}"
                case ["claim", job, fence, step]:
                    member.job, member.state = job, "alive"
                    if {each.job for each in self.members} >= set(JOBS):
                        self.at_work.set()
                    if self.killed is not None and self.killed.job == job:
                        member.state = "took over"
                        self.note(f"{member.name} takes over {job} with fence {fence} and continues after step {step}")
                        self.taken_over.set()
                case ["seen", seq]:
                    member.seq, member.state = int(seq), "alive"
                case ["digest", digest]:
                    member.digest = digest
                case unexpected:
                    self.note(f"{member.name} sent unexpected output: {unexpected}")
        code = await member.process.wait()
        if member is not self.killed:
            if code != 0:
                member.state = f"ended with exit code {code}"
            elif "took over" not in member.state:
                member.state = "done"

    async def kill(self) -> None:
        """Kill a worker during a job with SIGKILL: no handler runs, nothing is flushed."""
        self.killed = next(member for member in self.members if member.job and member.process.returncode is None)
        self.killed.process.kill()
        self.killed.state = "killed (SIGKILL)"
        self.note(f"{self.killed.name} is killed during {self.killed.job}; its lease expires")

    async def finished(self) -> None:
        await asyncio.gather(*self._listeners)

    def stop(self) -> None:
        for member in self.members:
            with suppress(ProcessLookupError):
                if member.process.returncode is None:
                    member.process.kill()

    def note(self, text: str) -> None:
        self.notes.append(f"{time.monotonic() - self.started:5.1f} s  {text}")
        if not self.console.is_terminal:
            self.console.print(self.notes[-1])

    def view(self) -> Group:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        widths = {"process": 10, "pid": 7, "job": 6, "commits": 7, "per s": 6, "last seq": 8, "state": 16}
        for name, width in widths.items():
            table.add_column(name, justify="left" if name in {"process", "job", "state"} else "right", min_width=width)
        for each in self.members:
            style = "red" if each is self.killed else "green" if "took over" in each.state else ""
            count = f"{len(each.acks):,}" if each.acks else ""
            rate = f"{each.rate:,.0f}" if each.process.returncode is None else ""
            cells = [each.name, str(each.process.pid), each.job, count, rate, f"{each.seq:,}", each.state]
            table.add_row(*cells, style=style)
        return Group(table, Text(self.total()), Text("\n".join(["", *self.notes, ""]), style="cyan"))

    def total(self) -> str:
        head = max(each.seq for each in self.members)
        commits = sum(len(each.acks) for each in self.members)
        rate = commits / (time.monotonic() - self.started)
        return f"head of the log {head:,}, acknowledged {commits:,}, {rate:,.0f} durable commits per second"


async def demonstrate(seconds: float) -> int:
    directory = tempfile.mkdtemp(prefix="keelbolt-demo-")
    url = f"sqlite:///{directory}/demo.db"
    show = Show(url)
    show.console.print(f"[bold]Keelbolt[/]: seven processes on {url}", soft_wrap=True)
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit(PARTITION, *(Enqueue("jobs", job) for job in JOBS))
        try:
            for number in range(1, 5):
                await show.start("worker", f"worker-{number}")
            for number in range(1, 3):
                await show.start("follower", f"follower-{number}")
            story = asyncio.create_task(asyncio.wait_for(tell_the_story(show, kernel, seconds), seconds + 60))
            if show.console.is_terminal:
                with Live(console=show.console, auto_refresh=False) as live:
                    while not story.done():
                        await asyncio.wait([story], timeout=0.125)
                        live.update(show.view(), refresh=True)
            else:
                while not story.done():
                    await asyncio.wait([story], timeout=1.0)
                    show.console.print(show.total())
                show.console.print(show.view())
            await story
        finally:
            show.stop()
        return await verify(show, kernel)


async def tell_the_story(show: Show, kernel: Kernel, seconds: float) -> None:
    await show.at_work.wait()
    show.started = time.monotonic()
    show.note("3 workers run 3 jobs, 1 worker is idle, 2 followers tail the log")
    await asyncio.sleep(seconds * 0.4)
    await show.kill()
    await show.taken_over.wait()
    await asyncio.sleep(max(0.5, show.started + seconds - time.monotonic()))
    # The first commit stops the workers; the second, after the last step, stops the followers.
    await kernel.commit(PARTITION, Put("control", "stop", b""))
    await kernel.commit(PARTITION, Append("journal", "all", (Draft("end", b""),)))
    await show.finished()
    show.note("all processes have stopped")


# --------------------------------------------------------------------------------------------------- was anything lost?


async def verify(show: Show, kernel: Kernel) -> int:
    entries = await read_all(kernel)
    written = {entry.seq: entry.data.decode() for entry in entries}
    acknowledged = {seq: text for member in show.members for seq, text in member.acks.items()}
    taken = {job: [int(text.split()[1]) for text in written.values() if text.startswith(job)] for job in JOBS}
    digest = hashlib.sha256(b"".join(line(entry) for entry in entries)).hexdigest()
    answers = {
        f"all {len(acknowledged):,} acknowledged entries are in the log": acknowledged.items() <= written.items(),
        f"the seqs of the log are 1..{len(entries):,} without a gap": list(written) == list(range(1, len(entries) + 1)),
        "every job continued where it stopped; no step was lost or repeated": all(
            done == list(range(1, len(done) + 1)) for done in taken.values()
        ),
        "both followers read the same entries in the same order": {
            member.digest for member in show.members if member.name.startswith("follower")
        }
        == {digest},
    }
    for sentence, true in answers.items():
        show.console.print(Text.assemble(("  yes  ", "green") if true else ("  NO   ", "bold red"), sentence))
    show.console.print("\nThe file still exists. Try next:")
    command = Path(sys.executable).with_name("keelbolt")
    shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    for action in ("storage stats", "storage check", "migrate --dry-run"):
        show.console.print(f"  {shown} {action} {show.url}", soft_wrap=True)
    return 0 if all(answers.values()) else 1


async def read_all(kernel: Kernel) -> list[Entry]:
    entries: list[Entry] = []
    while page := (await kernel.read_log(PARTITION, "journal", "all", after=len(entries), limit=5000)).entries:
        entries.extend(page)
    return entries


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long to write (default 8)")
    for hidden in ("--role", "--url", "--name"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "worker":
        asyncio.run(worker(given.url, given.name))
    elif given.role == "follower":
        asyncio.run(follower(given.url))
    else:
        return asyncio.run(demonstrate(given.seconds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
