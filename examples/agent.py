"""The agent that `make run` serves: it streams, remembers, asks back, does things once, and survives its process.

    holdfast serve examples.agent:Guide

Say "count to 5", "book a table", "remember blue", "what do you remember?", "wait 20 seconds" or anything else.
"""

from __future__ import annotations

import asyncio
import re

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
            await self.book(ctx)
        elif match := re.match(r"count to (\d{1,4})$", text):
            await self.count(ctx, int(match[1]))
        elif text.startswith("book"):
            await ctx.request_input("For what time?")
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

    async def remember(self, ctx: TaskContext, word: str) -> None:
        words = await ctx.update_context(lambda known: [*(known or []), word])
        await ctx.respond(f"I remember {len(words)} word(s) now.")


async def reserve(time: str, key: str) -> dict[str, str]:
    """Stands for a call to somebody else's system, which takes the key to recognise a repeat."""
    await asyncio.sleep(0.5)
    return {"table": "by the window", "time": time, "reference": key}
