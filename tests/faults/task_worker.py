"""A process of a pool that runs tasks until it is killed or gets SIGTERM.

    python -m tests.faults.task_worker URL NOTES CONCURRENCY SENDS LEASE [CRASH]

The first word of a task's text is its kind:

- *work*: a stream of chunks, each of them with the fence of its run, between durable steps with an effect;
- *wait*: holds the task until the process gets SIGTERM; the process that takes it over completes it;
- *hold*: the same, but ignores cancellation. A line ``go on`` on stdin makes the first holder try every possible write
  and print the results;
- *busy* FILE: the first holder blocks the event loop until the file exists, then tries to complete the task;
- *poison*: ends the process;
- *echo*: completes the task.

It sends SENDS tasks of its own, which it creates, claims and starts in one commit each.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from keelbolt.kernel import Kernel, open_storage
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.tasks import Envelope, Message, Part, Role, TaskContext, TaskEngine, TaskSettings
from keelbolt.testing.crash import CrashPoint
from tests.faults.stale import stale_writes
from tests.faults.task_notes import TaskNotes

LEASE_SECONDS = 1.0
STEPS = 3
CHUNKS = 5  # before each step
SETTINGS = TaskSettings(lease_seconds=LEASE_SECONDS, heartbeat_seconds=0.3, drain_seconds=0.2, cancel_seconds=0.5)


def message(message_id: str, text: str) -> Message:
    return Message(message_id=message_id, role=Role.user, parts=[Part(text=text)])


class PoolWorker:
    """The worker."""

    def __init__(self, notes: TaskNotes) -> None:
        self._notes = notes
        self.go_on = asyncio.Event()

    async def handle(self, ctx: TaskContext) -> None:
        run = ctx._run
        fence = run.journal.claim.fence
        self._notes.write("run", task=ctx.task_id, attempt=ctx.attempt, fence=fence, worker=run.runner.name)
        match ctx.user_text.split()[0]:
            case "work":
                await self._work(ctx, fence)
            case "wait" | "hold" as how:
                await self._hold(ctx, stubborn=how == "hold")
            case "busy":
                await self._busy(ctx)
            case "poison":
                os._exit(13)
            case _:
                await ctx.complete(f"pid {os.getpid()}")

    async def _work(self, ctx: TaskContext, fence: int) -> None:
        for number in range(STEPS):
            for chunk in range(CHUNKS):
                await ctx.emit_text_artifact(f"{fence} {number}.{chunk}", append=True)
                await asyncio.sleep(random.uniform(0, 0.01))
            done = await ctx.step(f"step {number}", self._effect, ctx.task_id, number, fence, in_doubt="retry")
            self._notes.write("recorded", task=ctx.task_id, step=number, fence=fence, by=done)
            text = f"{fence} said {number}"
            repeated = ctx.replaying  # recorded by an earlier run
            await ctx.send_status(text)
            if not repeated:
                self._notes.write("acknowledged", task=ctx.task_id, text=text)
        await ctx.complete(f"{fence} done")
        self._notes.write("acknowledged", task=ctx.task_id, text=f"{fence} done")

    async def _effect(self, task: str, step: int, fence: int) -> int:
        self._notes.write("effect", task=task, step=step, fence=fence)
        await asyncio.sleep(random.uniform(0, 0.03))
        return fence

    async def _hold(self, ctx: TaskContext, *, stubborn: bool) -> None:
        if ctx._run.journal.task.view.steps:
            await ctx.complete("taken over")
            return
        await ctx.step("hold", lambda: True)
        self._notes.write("held", task=ctx.task_id)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            if not stubborn:
                raise
            await self.go_on.wait()  # it ignores the loss of its lease
        print(json.dumps(await stale_writes(ctx)), flush=True)

    async def _busy(self, ctx: TaskContext) -> None:
        if ctx.attempt > 1:
            await ctx.complete(f"pid {os.getpid()}")
            return
        file = Path(ctx.user_text.split()[1])
        while not file.exists():
            time.sleep(0.01)
        try:
            await ctx.complete("late")
        except BaseException as error:
            self._notes.write("late", task=ctx.task_id, error=type(error).__name__)
            raise
        self._notes.write("late", task=ctx.task_id, error=None)


async def send_own(engine: TaskEngine, notes: TaskNotes, count: int) -> None:
    for number in range(count):
        message_id = f"own-{os.getpid()}-{number}"
        notes.write("sending", message=message_id)
        sent = await engine.tasks.send(message(message_id, "work"), Envelope(key=message_id))
        notes.write("sent", message=message_id, task=sent.task.record.task_id)
        await asyncio.sleep(random.uniform(0.05, 0.2))


async def listen(worker: PoolWorker) -> NoReturn:
    while True:
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            os._exit(3)  # the test process has ended
        if line.strip() == "go on":
            worker.go_on.set()


def kernel_of(url: str, crash: str) -> Kernel:
    if crash:
        return SQLiteKernel(url.removeprefix("sqlite:///"), probe=CrashPoint.parse(crash))
    return open_storage(url)


async def main(url: str, notes_path: str, concurrency: str, sends: str, lease: str, crash: str = "") -> None:
    logging.disable(logging.ERROR)  # errors are expected
    notes = TaskNotes(notes_path)
    worker = PoolWorker(notes)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = TaskSettings(
        concurrency=int(concurrency),
        lease_seconds=float(lease),
        heartbeat_seconds=0.3 * float(lease),
        drain_seconds=SETTINGS.drain_seconds,
        cancel_seconds=SETTINGS.cancel_seconds,
    )
    async with kernel_of(url, crash) as kernel, TaskEngine(kernel, worker.handle, settings=settings) as engine:
        print("ready", flush=True)
        listening = asyncio.create_task(listen(worker))
        sending = asyncio.create_task(send_own(engine, notes, int(sends)))
        await stop.wait()
        sending.cancel()
        listening.cancel()
    print("drained", flush=True)
    os._exit(0)  # a thread still waits for stdin


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
