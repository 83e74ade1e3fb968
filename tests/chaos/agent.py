"""An agent of a campaign: a server whose worker runs the command in its message, and records its effects.

The text of a message is ``<kind> <number>``:

- *work*: chunks of a stream between durable steps; each step has an external effect;
- *ask*: asks its user, and completes with the answer;
- *wait*: waits for its cancel, and ends by itself after a while;
- *turn*: a turn with a gate (see `tests.chaos.clerk`); *yes* and *no* answer the gate;
- *echo*: completes at once.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from keelbolt.auth import APIKeyAuthenticator, Principal
from keelbolt.google_adk.families import AdkRetention
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.langgraph.families import LangGraphRetention
from keelbolt.openai_agents.families import OpenAIRetention
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.state.families import StateRetention
from keelbolt.tasks import Dependency, RetentionPolicy, TaskContext, TaskManager, TaskSettings, Worker
from keelbolt.testing.crash import CrashPoint
from keelbolt.turns import TurnWorker
from keelbolt.turns.durable.families import TurnRetention
from tests.chaos.clerk import clerk
from tests.chaos.history import History
from tests.faults.disk import failing

OWNERS = ("ann", "ben")
LEASE_SECONDS = 1.0
STEPS = 2
CHUNKS = 3
EFFECT_SECONDS = 0.05  # of a step, on average; some take much longer, so that faults meet running tasks
WAIT_SECONDS = 3.0
SWEPT = (RetentionPolicy(canceled=1.0, every=2.0),)  # a sweep goes on beside all faults
KEPT_SECONDS = 30.0  # in a soak
SOAKED = (
    RetentionPolicy(
        completed=KEPT_SECONDS,
        failed=KEPT_SECONDS,
        canceled=KEPT_SECONDS,
        input_required=KEPT_SECONDS,
        every=KEPT_SECONDS / 2,
    ),
    StateRetention(
        events=KEPT_SECONDS,
        updates=KEPT_SECONDS,
        trajectories=KEPT_SECONDS,
        artifacts=KEPT_SECONDS,
        sessions=KEPT_SECONDS,
    ),
    TurnRetention(threads=KEPT_SECONDS, turns=KEPT_SECONDS, deleted=KEPT_SECONDS),
    LangGraphRetention(langgraph_threads=KEPT_SECONDS),
    OpenAIRetention(openai_sessions=KEPT_SECONDS),
    AdkRetention(adk_sessions=KEPT_SECONDS),
)


def key_of(owner: str) -> str:
    """Return the API key of an owner."""
    return f"key-of-{owner}-0123456789abcdef"


class Hands(Worker, Dependency):
    """The worker."""

    def __init__(self, history: History, turns: TurnWorker) -> None:
        self._history = history
        self._turns = turns

    def attach(self, tasks: TaskManager) -> None:
        self._turns.attach(tasks)

    async def startup(self) -> None:
        await self._turns.startup()
        self._history.note("ready")

    async def shutdown(self) -> None:
        await self._turns.shutdown()

    async def handle(self, ctx: TaskContext) -> None:
        run = ctx._run
        fence = run.journal.claim.fence
        self._history.note("run", task=ctx.task_id, fence=fence, worker=run.runner.name)
        try:
            await self._do(ctx, fence)
        finally:
            self._history.note("left", task=ctx.task_id)

    async def _do(self, ctx: TaskContext, fence: int) -> None:
        match ctx.user_text.split()[0]:
            case "work":
                await self._work(ctx, fence)
            case "ask":
                await self._ask(ctx)
            case "wait":
                await asyncio.sleep(WAIT_SECONDS)
                await ctx.complete("waited")
            case "turn" | "yes" | "no":
                await self._turns.handle(ctx)
            case "answer":  # of a question
                await ctx.complete(f"thanks for {ctx.user_text}")
            case _:
                await ctx.respond(ctx.user_text)

    async def _work(self, ctx: TaskContext, fence: int) -> None:
        for number in range(STEPS):
            for chunk in range(CHUNKS):
                await ctx.emit_text_artifact(f"{fence}:{number}.{chunk} ", append=number + chunk > 0)
            await ctx.step(f"step {number}", self._effect, ctx.task_id, number, in_doubt="retry")
            self._history.note("recorded", task=ctx.task_id, step=number)
        await ctx.complete(f"did {ctx.user_text}")

    async def _effect(self, task: str, step: int) -> bool:
        self._history.note("effect", task=task, step=step)
        await asyncio.sleep(random.expovariate(1 / EFFECT_SECONDS))
        return True

    async def _ask(self, ctx: TaskContext) -> None:
        await ctx.request_input("how many?")


def go_wrong(at: str) -> None:
    """Make this process die at a point of a commit to SQLite (``saved:5``), or fail at its n-th fsync (``fsync:5``)."""
    made = SQLiteKernel.__init__
    what, _, number = at.partition(":")
    faulty: dict[str, Any] = {"probe": CrashPoint.parse(at)} if what != "fsync" else {"connect": failing(int(number))}

    def with_fault(self: SQLiteKernel, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **{**named, **faulty})

    SQLiteKernel.__init__ = with_fault  # type: ignore[method-assign]


def serve(url: str, folder: str, port: str, crash: str = "") -> None:
    """Serve until the process ends; ``crash`` is its fault, or *soak*: a short retention."""
    soaking = crash == "soak"
    if crash and not soaking:
        go_wrong(crash)
    history = History(Path(folder), "agent")
    server = A2AServer(
        worker=Hands(history, clerk(url, history)),
        agent_card=AgentCardConfig(
            name="Chaos",
            description="Does what its message says",
            version="1",
            capabilities=CapabilitiesConfig(streaming=True, push_notifications=True),
        ),
        storage=url,
        auth=APIKeyAuthenticator.of({key_of(owner): Principal(owner) for owner in OWNERS}),
        retention=SOAKED if soaking else SWEPT,
        settings=ServerSettings.of({}, webhook_loopback=True),
        task_settings=TaskSettings.of(
            {},
            lease_seconds=LEASE_SECONDS,
            heartbeat_seconds=LEASE_SECONDS / 4,
            max_attempts=1000,
            drain_seconds=0.2,
            cancel_seconds=1.0,
        ),
    )
    server.run(port=int(port))
