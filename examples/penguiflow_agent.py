"""A whole PenguiFlow program on a StateStore: a flow, a planner with a scripted model, and a session.

    python examples/penguiflow_agent.py

The first process runs the flow, starts a background task in the session, and lets the planner ask a person. Then it is
killed. A second process finds the flow's history, marks the orphaned task as failed, and resumes the planner's pause
with a lease, so that the pause would come back if this process died too. It needs ``pip install penguiflow``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

from penguiflow import Headers, Message, ModelRegistry, Node, NodePolicy, create
from penguiflow.catalog import build_catalog, tool
from penguiflow.planner import PlannerFinish, PlannerPause, ReactPlanner
from penguiflow.sessions import StreamingSession
from pydantic import BaseModel

from keelbolt.state import StateStore
from keelbolt.state.sessions import OwnedTasks

CONTEXT = {"tenant_id": "acme", "user_id": "ann", "session_id": "session-1", "trace_id": "plan-1"}


class Order(BaseModel):
    text: str


@tool(desc="ask a person for approval")  # type: ignore[untyped-decorator]
async def approve(args: Order, ctx: Any) -> Order:
    """Wait for a person."""
    await ctx.pause("approval_required", {"question": f"{args.text}?"})
    return args


class Script:
    """A model that asks for approval once, and then answers."""

    def __init__(self, *tools: str) -> None:
        self._tools = list(tools)

    async def complete(self, **_request: Any) -> tuple[str, float]:
        """Return the next step of the plan."""
        step: dict[str, Any] = {"thought": "", "next_node": "final_response", "args": {"raw_answer": "shipped"}}
        if self._tools:
            step = {"thought": "", "next_node": self._tools.pop(0), "args": {"text": "Ship the order"}}
        return json.dumps(step), 0.0


def planner(store: Any, *tools: str) -> ReactPlanner:
    """A planner with the tool and the script."""
    registry = ModelRegistry()
    registry.register("approve", Order, Order)
    catalog = build_catalog([Node(approve, name="approve")], registry)
    return ReactPlanner(llm_client=Script(*tools), catalog=catalog, state_store=store)


async def run_flow(store: Any) -> None:
    """A flow of one node; its events are the history of the trace."""

    async def price(message: Message, _ctx: object) -> Message:
        return message.model_copy(update={"payload": {**message.payload, "price": 42}})

    flow = create(Node(price, name="price", policy=NodePolicy(validate="none")).to(), state_store=store)
    flow.run()
    await flow.emit(Message(payload={"item": "rope"}, headers=Headers(tenant="acme"), trace_id="order-1"))
    await flow.fetch()
    await flow.stop()


async def first(url: str) -> None:
    """Run until the planner waits for a person; then this process is killed."""
    store = StateStore(url)
    await run_flow(store)
    session = StreamingSession("session-1", state_store=OwnedTasks(store, lease_seconds=1.0))
    started = asyncio.Event()

    async def pipeline(_runtime: Any) -> None:
        started.set()
        await asyncio.sleep(3600)

    running = asyncio.create_task(session.run_task(pipeline, query="pack the parcel"))
    await started.wait()
    paused = await planner(store, "approve").run("ship it", tool_context=dict(CONTEXT))
    assert isinstance(paused, PlannerPause)
    await store.flush()
    sys.stdout.write(f"{paused.resume_token}\n")
    sys.stdout.flush()
    await running


async def second(url: str) -> None:
    """Continue the work of the killed process."""
    async with StateStore(url) as store:
        history = [event.kind for event in await store.load_history("order-1")]
        print(f"the flow's history: {', '.join(history)}")
        await asyncio.sleep(2.0)  # the lease of the killed process expires
        session = StreamingSession("session-1", state_store=OwnedTasks(store, lease_seconds=1.0))
        await session.hydrate()
        print(f"the session's tasks: {', '.join(task.status.value for task in await store.list_tasks('session-1'))}")
        (pause,) = await store.list_pauses()
        print(f"one pause waits: {pause.payload['payload']['question']}")
        lease = await store.take_planner_state(pause.token, lease_seconds=60)
        assert lease is not None
        async with lease:  # confirmed at the end; released if the resume fails
            resuming = planner(Leased(store, lease.payload))
            result = await resuming.resume(pause.token, user_input="yes")
        assert isinstance(result, PlannerFinish)
        print(f"the planner's answer: {result.payload['raw_answer']}")
        print(f"pauses that wait: {len(await store.list_pauses())}")


class Leased:
    """The store, with a pause that is held by a lease."""

    def __init__(self, store: StateStore, payload: dict[str, Any]) -> None:
        self._store = store
        self._payload = payload

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load_planner_state(self, _token: str) -> dict[str, Any]:
        """Return the leased pause."""
        return self._payload


def main() -> None:
    """Kill the first process when it waits for a person, and continue in a second one."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/state.db"
        command = [sys.executable, __file__, "first", url]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        print("the first process was killed")
        asyncio.run(second(url))


if __name__ == "__main__":
    if sys.argv[1:2] == ["first"]:
        asyncio.run(first(sys.argv[2]))
    else:
        main()
