"""A process that writes as fast as possible and notes acknowledged commits, until it is killed.

    python -m tests.faults.writer URL NAME NOTES SEED

It ends by itself only if a call fails that must succeed.

Each commit leaves a trace by which `verify` detects whether it happened completely:

- *pair*: a record and one entry in the stream of the same name, so that version n goes with entry n;
- *group*: entries in two streams with the same tag;
- *job*: a work item, its record and an entry in ``made``, and later, under the fence, one in ``done``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Awaitable
from typing import Any

from keelbolt.errors import CommitRefused
from keelbolt.kernel import (
    Append,
    Collection,
    Draft,
    Enqueue,
    Insert,
    Kernel,
    Patch,
    Put,
    Receipt,
    Replace,
    open_storage,
)

PARTITION = "faults"
FAMILIES = (Collection("doc"), Collection("job", fields={"state": str}, counters=((), ("state",))))
STREAMS = 4
DOCS = 4
LEASE_SECONDS = 1.0
PAUSE_SECONDS = 0.002  # so that a run of minutes is small enough to verify each entry


class Notes:
    """Acknowledged commits, one line each, written to the system at once, so that they survive a kill."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def take(self, kind: str, commit: Awaitable[Receipt], **what: Any) -> Receipt:
        began = time.monotonic()
        receipt = await commit
        self.write(kind, took=time.monotonic() - began, outcomes=receipt.outcomes, **what)
        return receipt

    def write(self, kind: str, **what: Any) -> None:
        outcomes = [outcome for outcome in what.pop("outcomes", ()) if isinstance(outcome, int | tuple)]
        line = json.dumps({"kind": kind, "outcomes": outcomes, **what})
        os.write(self._file, line.encode() + b"\n")


async def pairs(kernel: Kernel, notes: Notes, name: str, dice: random.Random) -> None:
    number = 0
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        number += 1
        key = f"doc-{dice.randrange(DOCS)}"
        body = f"{name} {number}".encode()
        entry = Append("history", key, (Draft("put", body),))
        record = await kernel.get(PARTITION, "doc", key)
        try:
            write = Replace("doc", key, record.version, body) if record and number % 2 else Put("doc", key, body)
            await notes.take("pair", kernel.commit(PARTITION, write, entry), key=key, body=body.decode())
        except CommitRefused:
            continue  # another process was faster


async def groups(kernel: Kernel, notes: Notes, name: str, dice: random.Random) -> None:
    number = 0
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        number += 1
        tag = f"{name} {number}"
        one, other = dice.sample(range(STREAMS), 2)
        await notes.take(
            "group",
            kernel.commit(
                PARTITION,
                Append("events", f"s{one}", (Draft("a", tag.encode()), Draft("b", tag.encode() + b"x" * 200))),
                Append("events", f"s{other}", (Draft("c", tag.encode()),)),
            ),
            streams=[f"s{one}", f"s{other}"],
            tag=tag,
        )


async def jobs(kernel: Kernel, notes: Notes, name: str) -> None:
    number = 0
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        number += 1
        key = f"{name} {number}"
        await notes.take(
            "made",
            kernel.commit(
                PARTITION,
                Enqueue("jobs", key, max_attempts=1000),
                Insert("job", key, b"", {"state": "made"}),
                Append("made", "all", (Draft("made", key.encode()),)),
            ),
            key=key,
        )
        for claim in await kernel.claim("jobs", name, limit=2, lease_seconds=LEASE_SECONDS):
            notes.write("claim", key=claim.key, fence=claim.fence)
            try:
                await notes.take(
                    "done",
                    kernel.commit(
                        PARTITION,
                        claim.complete(),
                        Patch("job", claim.key, {"state": "done"}),
                        Append("done", "all", (Draft("done", claim.key.encode()),)),
                    ),
                    key=claim.key,
                    fence=claim.fence,
                )
            except CommitRefused:
                continue  # the lease ended while this process was not scheduled


async def main(url: str, name: str, notes_path: str, seed: str) -> None:
    dice = random.Random(seed)
    notes = Notes(notes_path)
    async with open_storage(url, declare=FAMILIES) as kernel:
        print("ready", flush=True)
        async with asyncio.TaskGroup() as tasks:
            for number in range(2):
                tasks.create_task(pairs(kernel, notes, f"{name}.{number}", dice))
                tasks.create_task(groups(kernel, notes, f"{name}.{number}", dice))
            tasks.create_task(jobs(kernel, notes, name))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
