"""A process that runs tasks and kills itself with SIGKILL at a chosen commit of a task.

    python -m tests.faults.killed_worker URL FOLDER

``FOLDER/plans.json`` has a plan for each task: ``before:3`` kills before the third commit about the task, ``during:3``
during it, ``after:3`` after it is committed and before the caller gets the result. ``effect:1`` and
``effect:2`` kill before and after the effect of the payment. The commits of a task are counted over all processes, so
each plan kills once.

The first word of a task's text is its kind:

- *pay* asks for an approval, and pays in a step after it. ``FOLDER/ledger`` has a line for each payment.
- *book* writes a file, books in a step, and waits. Canceled, it removes the file and undoes the booking.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import cast

from keelbolt.kernel import Kernel, Operation, Receipt, open_storage
from keelbolt.tasks import Done, TaskContext, TaskEngine, TaskSettings
from keelbolt.testing.worker import KernelLink
from tests.faults.task_notes import TaskNotes, read_notes
from tests.faults.task_worker import LEASE_SECONDS, SETTINGS


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillingKernel(KernelLink):
    """A kernel that kills its process at the commits that the plans name."""

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        super().__init__(kernel)
        self._folder = folder
        self._plans: dict[str, str] = json.loads((folder / "plans.json").read_text())

    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        named = {getattr(operation, field, None) for operation in operations for field in ("key", "stream")}
        for task_id in [task_id for task_id in self._plans if task_id in named]:
            when, _, number = self._plans[task_id].partition(":")
            if int(number) == self._counted(task_id) and when != "effect":
                (self._folder / f"reached-{task_id}").touch()
                return self._killed(when, partition, *operations)
        return self.kernel.commit(partition, *operations)

    def _counted(self, task_id: str) -> int:
        count = os.open(self._folder / f"commits-{task_id}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(count, b".")
            return os.fstat(count).st_size
        finally:
            os.close(count)

    async def _killed(self, when: str, partition: str, *operations: Operation) -> Receipt:
        if when == "before":
            die()
        committing = asyncio.ensure_future(self.kernel.commit(partition, *operations))
        if when == "after":
            await committing
        else:
            await asyncio.sleep(0)
        die()
        raise AssertionError("it is dead")

    def effect(self, task_id: str, number: int) -> None:
        if self._plans.get(task_id) == f"effect:{number}":
            del self._plans[task_id]
            mark = self._folder / f"reached-{task_id}"
            if not mark.exists():
                mark.touch()
                die()


class Worker:
    """Runs the tasks of both kinds."""

    def __init__(self, kernel: KillingKernel, folder: Path) -> None:
        self._kernel = kernel
        self._folder = folder
        self._ledger = TaskNotes(folder / "ledger")

    def noted(self, kind: str, task_id: str) -> Done | None:
        found = [
            note for note in read_notes([self._folder / "ledger"]) if (note["kind"], note["task"]) == (kind, task_id)
        ]
        return Done("before") if found else None

    async def handle(self, ctx: TaskContext) -> None:
        if ctx.turn == 1 and ctx.user_text.startswith("book"):
            await self._book(ctx)
        else:
            await self._pay(ctx)

    async def _pay(self, ctx: TaskContext) -> None:
        if ctx.state is None:
            await ctx.request_input("Shall I pay?", state={"amount": ctx.user_text})
        elif ctx.user_text == "no":
            await ctx.complete("not paid")
        else:
            paid = await ctx.step("pay", self._paid, ctx.task_id, ctx.user_text, probe=self._was_paid)
            await ctx.complete(str(paid))

    async def _paid(self, task_id: str, approval: str) -> str:
        self._kernel.effect(task_id, 1)
        self._ledger.write("paid", task=task_id, approval=approval)
        self._kernel.effect(task_id, 2)
        return "now"

    async def _was_paid(self, task_id: str, _: str) -> Done | None:
        return self.noted("paid", task_id)

    async def _book(self, ctx: TaskContext) -> None:
        file = self._folder / f"{ctx.task_id}.part"
        await ctx.step("book", self._note, "booked", ctx.task_id, probe=self._noted)
        file.write_text("unfinished")
        try:
            self._ledger.write("waiting", task=ctx.task_id)
            await asyncio.sleep(600)
        finally:
            if ctx.is_cancelled:
                async with ctx.shielded(30):
                    self._ledger.write("cleaning", task=ctx.task_id)
                    await ctx.step("undo", self._note, "undone", ctx.task_id, probe=self._noted)
                    file.unlink(missing_ok=True)

    async def _note(self, kind: str, task_id: str) -> str:
        self._ledger.write(kind, task=task_id)
        return kind

    async def _noted(self, kind: str, task_id: str) -> Done | None:
        return self.noted(kind, task_id)


async def main(url: str, folder: str) -> None:
    logging.disable(logging.ERROR)
    settings = TaskSettings(
        concurrency=1,  # a kill affects no other task
        lease_seconds=LEASE_SECONDS,
        heartbeat_seconds=SETTINGS.heartbeat_seconds,
        cancel_seconds=30.0,
    )
    async with open_storage(url) as opened:
        kernel = KillingKernel(opened, Path(folder))
        worker = Worker(kernel, Path(folder))
        async with TaskEngine(cast("Kernel", kernel), worker.handle, settings=settings):
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.read)  # until the test process ends
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
