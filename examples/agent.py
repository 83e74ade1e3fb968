"""The agent that `make run` serves: it streams, remembers, asks back, does things once, and survives its process.

    holdfast serve examples.agent:Guide

Say "count to 5", "book a table", "deploy the site", "write about the sea", "remember blue", "what do you remember?",
"wait 20 seconds", "survive a crash" or anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal

from holdfast.protocol.card import AgentCardConfig, CapabilitiesConfig, SkillConfig
from holdfast.tasks import TaskContext, Worker

card = AgentCardConfig(
    name="Guide",
    description="Shows what a durable agent can do: streaming, questions, memory, steps that are done once.",
    capabilities=CapabilitiesConfig(streaming=True, push_notifications=True),
    skills=[
        SkillConfig(
            id="count",
            name="Count",
            description="Counts aloud, one streamed chunk per number.",
            tags=["streaming"],
            examples=["count to 5"],
        ),
        SkillConfig(
            id="book",
            name="Book a table",
            description="Asks for the time, then books: once, whatever happens to the process.",
            tags=["questions", "steps"],
            examples=["book a table"],
        ),
        SkillConfig(
            id="deploy",
            name="Deploy",
            description="Builds, asks for an approval, and releases only after it: also tomorrow, in another process.",
            tags=["approval", "steps"],
            examples=["deploy the site"],
        ),
        SkillConfig(
            id="write",
            name="Write",
            description="Writes sentence by sentence; redirect it meanwhile, and it goes on about something else.",
            tags=["streaming", "steering"],
            examples=["write about the sea"],
        ),
        SkillConfig(
            id="crash",
            name="Survive a crash",
            description="Kills its own process while it works. Another one takes over; what was done stays done.",
            tags=["durability", "steps"],
            examples=["survive a crash"],
        ),
        SkillConfig(
            id="remember",
            name="Remember",
            description="Keeps words for the conversation (tasks with the same contextId).",
            tags=["memory"],
            examples=["remember blue", "what do you remember?"],
        ),
        SkillConfig(
            id="wait",
            name="Wait",
            description="Sleeps without holding a process: stop the server meanwhile, start it again, it goes on.",
            tags=["durability"],
            examples=["wait 20 seconds"],
        ),
    ],
)


class Guide(Worker):
    """Chooses by the words of the message."""

    async def handle(self, ctx: TaskContext) -> None:
        text = ctx.user_text.strip().lower()
        if ctx.history:  # an answer to our question
            await (self.release if ctx.history[0].text.lower().startswith("deploy") else self.book)(ctx)
        elif match := re.match(r"count to (\d{1,4})$", text):
            await self.count(ctx, int(match[1]))
        elif text.startswith("book"):
            await ctx.request_input("For what time?")
        elif text.startswith("deploy"):
            await self.deploy(ctx)
        elif text.startswith("write about "):
            await self.write(ctx, text.removeprefix("write about "))
        elif text == "survive a crash":
            await self.crash(ctx)
        elif text.startswith("remember "):
            await self.remember(ctx, text.removeprefix("remember "))
        elif text.startswith("what do you remember"):
            words = await ctx.load_context() or []
            await ctx.respond(f"I remember: {', '.join(words) or 'nothing yet'}.")
        elif match := re.match(r"wait (\d{1,4})", text):
            await ctx.sleep(int(match[1]))
            await ctx.respond(f"{match[1]} seconds are over (this is attempt {ctx.attempt}).")
        else:
            await ctx.complete(f"You said: {ctx.user_text}")

    async def count(self, ctx: TaskContext, last: int) -> None:
        for number in range(1, last + 1):
            await ctx.emit_text_artifact(f"{number} ", artifact_id="numbers", append=True, last_chunk=number == last)
            await asyncio.sleep(0.2)
        await ctx.complete()

    async def book(self, ctx: TaskContext) -> None:
        key = ctx.idempotency_key("book")
        booking = await ctx.step("book", reserve, ctx.user_text, key, idempotent=True)
        await ctx.complete_json(booking)

    async def deploy(self, ctx: TaskContext) -> None:
        built = await ctx.step("build", build, idempotent=True)
        await ctx.request_input(f"Approve the release of {built}?", data={"approval": {"version": built}})

    async def release(self, ctx: TaskContext) -> None:
        if ctx.user_text.strip().lower() not in ("approve", "yes", "ok"):
            await ctx.reject("Not released.")
            return
        await ctx.step("release", build, idempotent=True)
        await ctx.complete("Released.")

    async def write(self, ctx: TaskContext, topic: str) -> None:
        async def listen() -> None:
            nonlocal topic
            async for event in ctx.inbox:
                if event.kind == "redirect":
                    topic = str(event.payload.get("topic") or "something else")

        listening = asyncio.create_task(listen())
        try:
            for beginning in ("Nobody knows much about", "And yet there is", "So let us praise", "That was"):
                await ctx.emit_text_artifact(f"{beginning} {topic}. ", artifact_id="text", append=True)
                await asyncio.sleep(1)
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
        await ctx.complete()

    async def crash(self, ctx: TaskContext) -> None:
        """Only where several processes serve (`make run` does so); alone, start the agent again."""
        parcel = await ctx.step("pack", build, idempotent=True)
        if ctx.attempt == 1:
            await ctx.send_status(f"{parcel} is packed. Now process {os.getpid()} dies.")
            await asyncio.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        await ctx.step("ship", build, idempotent=True)
        await ctx.complete(f"{parcel} was packed once, and shipped in attempt {ctx.attempt} by process {os.getpid()}.")

    async def remember(self, ctx: TaskContext, word: str) -> None:
        words = await ctx.update_context(lambda known: [*(known or []), word])
        await ctx.respond(f"I remember {len(words)} word(s) now.")


async def reserve(time: str, key: str) -> dict[str, str]:
    """Stands for a call to somebody else's system, which takes the key to recognise a repeat."""
    await asyncio.sleep(0.5)
    return {"table": "by the window", "time": time, "reference": key}


async def build() -> str:
    """Stands for something that takes a while; each time it is done, something else comes of it."""
    await asyncio.sleep(0.3)
    return f"parcel {os.urandom(2).hex()}"
