"""Runs flows of penguiflow on a StateStore, and notes in a file what was acknowledged.

``python -m tests.faults.state_flows URL NOTES FLOWS``. Each line of the file is written after the save was awaited. A
process that is started again continues with the first flow that is not noted as done.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from penguiflow import Headers, Message, Node, NodePolicy, create

from keelbolt.state import StateStore
from keelbolt.state.names import GLOBAL
from tests.integration.state.things import trajectory, update

NODES = 5
NODE_SECONDS = 0.01


class Noted:
    """The store, with a note of each save that was awaited."""

    def __init__(self, store: StateStore, notes: int) -> None:
        self._store = store
        self._notes = notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def note(self, *line: object) -> None:
        os.write(self._notes, json.dumps(line).encode() + b"\n")

    async def save_event(self, event: Any) -> None:
        await self._store.save_event(event)
        self.note("event", event.trace_id or GLOBAL, event.ts, event.kind, event.node_name)


async def flow_once(store: Noted, name: str, trace: str) -> None:
    """One flow of five nodes, an update, a trajectory and a memory state, each acknowledged."""

    async def passes(message: Any, _ctx: Any) -> Any:
        await asyncio.sleep(NODE_SECONDS)
        return message

    policy = NodePolicy(validate="none")
    nodes = [Node(passes, name=f"node-{number}", policy=policy) for number in range(NODES)]
    flow = create(*(node.to(*nodes[number + 1 : number + 2]) for number, node in enumerate(nodes)), state_store=store)
    flow.run()
    await flow.emit(Message(payload={"flow": name}, headers=Headers(tenant="t"), trace_id=trace))
    await flow.fetch()
    await flow.stop()
    await store.save_update(update(os.getpid(), session=name))
    store.note("update", name, f"update-{os.getpid()}")
    await store.save_trajectory(trace, name, trajectory())
    store.note("trajectory", name, trace)
    await store.save_memory_state(name, {"done": trace})
    store.note("memory", name, trace)
    store.note("done", name)


async def main(url: str, notes: Path, flows: int) -> None:
    name = notes.stem
    done = {json.loads(line)[1] for line in _lines(notes) if line.startswith('["done"')}
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = Noted(StateStore(url, timeout_seconds=60.0), file)
    for number in range(flows):
        if f"{name}-{number}" not in done:
            await flow_once(store, f"{name}-{number}", f"{name}-{number}-{os.getpid()}")
    await store.close()
    sys.stdout.write("finished\n")


def _lines(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
