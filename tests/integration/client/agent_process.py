"""An agent in its own process, to be killed: ``python agent_process.py STORAGE``. Prints its URL."""

from __future__ import annotations

import asyncio
import sys

from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext
from keelbolt.tasks.settings import TaskSettings

CARD = AgentCardConfig(name="Counter", description="Counts", capabilities=CapabilitiesConfig(streaming=True))


async def count(ctx: TaskContext) -> None:
    most = int(ctx.user_text)
    for number in range(most):
        await ctx.emit_text_artifact(f"{number} ", append=number > 0, last_chunk=number == most - 1)
        if number % 50 == 0:
            await asyncio.sleep(0.01)
    await ctx.complete()


if __name__ == "__main__":
    A2AServer(
        worker=count,
        agent_card=CARD,
        storage=sys.argv[1],
        task_settings=TaskSettings.of(lease_seconds=1.0, max_attempts=20),
    ).run(port=0, ready=lambda url: print(url, flush=True))
