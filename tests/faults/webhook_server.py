"""An agent in its own process that streams and posts to webhooks; it prints its URL once it listens.

python -m tests.faults.webhook_server STORAGE LEASE_SECONDS
"""

from __future__ import annotations

import asyncio
import sys

from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from keelbolt.tasks.settings import TaskSettings

CHUNKS = 6


async def stream(ctx: TaskContext) -> None:
    for number in range(CHUNKS):
        await ctx.emit_text_artifact(f"{number}", append=number > 0, last_chunk=number == CHUNKS - 1)
        await asyncio.sleep(0.01)
    await ctx.complete()


def main(url: str, lease: str) -> None:
    capabilities = CapabilitiesConfig(streaming=True, push_notifications=True)
    server = A2AServer(
        worker=stream,
        agent_card=AgentCardConfig(name="Streams", description="Streams", capabilities=capabilities),
        storage=url,
        settings=ServerSettings.of({}, webhook_loopback=True),
        task_settings=TaskSettings.of(
            {}, lease_seconds=float(lease), heartbeat_seconds=float(lease) / 4, max_attempts=1000
        ),
    )
    server.run(port=0, ready=lambda address: print(address, flush=True))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
