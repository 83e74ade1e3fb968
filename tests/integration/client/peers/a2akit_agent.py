"""Agent of a2akit 0.0.32: JSON-RPC and REST of 0.3. Arguments: public URL, port."""

import asyncio
import sys

import uvicorn
from a2akit import A2AServer, AgentCardConfig, CapabilitiesConfig, SkillConfig, Worker

url, port = sys.argv[1], int(sys.argv[2])


class Echo(Worker):
    async def handle(self, ctx):
        word, _, rest = ctx.user_text.partition(" ")
        if word == "stream":
            count, _, pause = rest.partition(" ")
            for number in range(int(count)):
                last = number == int(count) - 1
                await ctx.emit_text_artifact(f"{number} ", artifact_id="numbers", append=number > 0, last_chunk=last)
                await asyncio.sleep(float(pause or 0))
            await ctx.complete()
        elif word == "wait":
            while not ctx.is_cancelled:
                await asyncio.sleep(0.02)
        elif word == "files":
            await ctx.emit_artifact(
                artifact_id="a", file_bytes=b"\x00\x01", filename="a.bin", media_type="application/octet-stream"
            )
            await ctx.emit_artifact(artifact_id="b", file_url="https://example.com/f", filename="f")
            await ctx.emit_data_artifact({"n": 1}, artifact_id="c")
            for number, data in enumerate(ctx.data_parts):
                await ctx.emit_data_artifact(data, artifact_id=f"given-{number}")
            await ctx.complete(f"You said: {ctx.user_text}")
        elif word == "ask" and not ctx.history:
            await ctx.request_input("Which one?")
        elif word == "fail":
            await ctx.fail("It does not work.")
        elif word == "reject":
            await ctx.reject("It does not work.")
        elif word == "say":
            await ctx.reply_directly(rest)
        else:
            await ctx.respond(f"You said: {ctx.user_text}")


async def extended(_request):
    return card


card = AgentCardConfig(
    name="a2akit",
    description="Echo",
    skills=[SkillConfig(id="echo", name="echo", description="echo", tags=["echo"])],
    capabilities=CapabilitiesConfig(streaming=True, push_notifications=True, extended_agent_card=True),
    input_modes=["text/plain", "application/json", "application/octet-stream"],
)
server = A2AServer(
    worker=Echo(),
    agent_card=card,
    additional_protocols=["http+json"],
    extended_card_provider=extended,
    push_allow_http=True,
)
uvicorn.run(server.as_fastapi_app(), port=port, log_level="warning", timeout_graceful_shutdown=1)
