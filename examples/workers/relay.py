"""A relay: another agent does the work; its stream, its questions and its cancel are passed on."""

from __future__ import annotations

import sys

from keelbolt.client import A2AClient
from keelbolt.errors import RelayFailed
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext, Worker


class Reception(Worker):
    def __init__(self, client: A2AClient) -> None:
        self.client = client

    async def handle(self, ctx: TaskContext) -> None:
        try:
            await ctx.relay(self.client, ctx.message, seconds=3600)
        except RelayFailed as error:
            await ctx.fail(error.reason or "The other agent failed.")
        else:
            await ctx.complete()


if __name__ == "__main__":
    card = AgentCardConfig(
        name="Reception", description="Passes you on", capabilities=CapabilitiesConfig(streaming=True)
    )
    A2AServer(worker=Reception(A2AClient(sys.argv[3])), agent_card=card, storage=sys.argv[1]).run(port=int(sys.argv[2]))
