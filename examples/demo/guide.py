"""The plain skills: streaming, memory, questions, durable steps, and recovery from a crash.

    keelbolt serve examples.demo.guide:Guide

Send "count to 5", "book a table", "deploy the site", "write about the sea", "work through 12 parcels", "remember blue",
"what do you remember?", "wait 20 seconds", "survive a crash", "break down" or anything else.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal

from examples.demo.steered import BUTTONS, Steered, steered
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig, SkillConfig
from keelbolt.tasks import TaskContext, Worker

BEGINNINGS = (
    "Few people know much about",
    "Old books praise",
    "Sailors tell stories of",
    "Every child has a question about",
    "Painters return again and again to",
    "There is a song about",
    "Winter changes",
    "So let us look once more at",
)


def skill(skill_id: str, name: str, description: str, tags: str, *examples: str) -> SkillConfig:
    return SkillConfig(id=skill_id, name=name, description=description, tags=tags.split(), examples=list(examples))


card = AgentCardConfig(
    name="Guide",
    description="Shows the features of a durable agent: streaming, questions, memory, durable steps.",
    capabilities=CapabilitiesConfig(streaming=True, push_notifications=True),
    extensions=[BUTTONS],
    skills=[
        skill("echo", "Echo", "Repeats your message.", "simple", "Hello"),
        skill("count", "Count", "Counts, one streamed chunk per number.", "streaming", "count to 5"),
        skill(
            "write",
            "Write",
            "Writes one sentence per second for about 40 seconds. Pause it meanwhile, or change its topic.",
            "streaming steering",
            "write about the sea",
        ),
        skill(
            "deploy",
            "Deploy",
            "Builds, asks for approval, and releases after it, even days later in another process.",
            "approval steps",
            "deploy the site",
        ),
        skill(
            "work",
            "Work through parcels",
            "One second per parcel. Kill its process meanwhile: another process continues with the next parcel.",
            "durability steps",
            "work through 20 parcels",
        ),
        skill(
            "crash",
            "Survive a crash",
            "Kills its own process during a task. Another process takes over; completed steps are not repeated.",
            "durability steps",
            "survive a crash",
        ),
        skill(
            "book",
            "Book a table",
            "Asks for the time, then books exactly once, even if the process dies.",
            "questions steps",
            "book a table",
        ),
        skill(
            "remember",
            "Remember",
            "Stores words for the conversation (tasks with the same contextId).",
            "memory",
            "remember blue",
            "what do you remember?",
        ),
        skill("fail", "Break down", "Fails, so that you can requeue it.", "failure", "break down"),
        skill(
            "wait",
            "Wait",
            "Sleeps without holding a process, and continues after a restart of the server.",
            "durability",
            "wait 20 seconds",
        ),
    ],
)


class Guide(Worker):
    """Selects the skill by the text of the message."""

    def __init__(self, *, pace: float = 1.0) -> None:
        self.pace = pace  # factor of all delays; 0: none

    async def handle(self, ctx: TaskContext) -> None:
        async with steered(ctx) as steering:
            await self.choose(ctx, steering)

    async def choose(self, ctx: TaskContext, steering: Steered) -> None:
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
            steering.topic = steering.topic or text.removeprefix("write about ")
            await self.write(ctx, steering)
        elif match := re.match(r"work through (\d{1,3}) parcels$", text):
            await self.work(ctx, int(match[1]), steering)
        elif text == "break down":
            await ctx.fail("The engine is out of oil.")
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
            await asyncio.sleep(0.2 * self.pace)
        await ctx.complete()

    async def write(self, ctx: TaskContext, steering: Steered) -> None:
        for beginning in (*BEGINNINGS * 5, "That was all about"):
            await steering.paused()
            if steering.brief:
                await ctx.emit_text_artifact(f"In short: {steering.topic}.", artifact_id="text", append=True)
                break
            await ctx.emit_text_artifact(f"{beginning} {steering.topic}. ", artifact_id="text", append=True)
            await asyncio.sleep(self.pace)
        await ctx.complete()

    async def deploy(self, ctx: TaskContext) -> None:
        built = await ctx.step("build", self.build, idempotent=True)
        await ctx.request_input(f"Approve the release of {built}?", data={"approval": {"version": built}})

    async def release(self, ctx: TaskContext) -> None:
        if ctx.user_text.strip().lower() not in ("approve", "yes", "ok"):
            await ctx.reject("Not released.")
            return
        await ctx.step("release", self.build, idempotent=True)
        await ctx.complete("Released.")

    async def work(self, ctx: TaskContext, parcels: int, steering: Steered) -> None:
        """Each parcel is a step: after a crash, recorded parcels are not packed again."""
        packers = set()
        for number in range(1, parcels + 1):
            await steering.paused()
            packers.add(await ctx.step(f"parcel {number}", self.pack, idempotent=True))
            await ctx.send_status(f"{number} of {parcels}, in process {os.getpid()}")
        who = f"{len(packers)} processes" if len(packers) > 1 else "one process"
        await ctx.complete(f"{parcels} parcels, each packed once, by {who}.")

    async def crash(self, ctx: TaskContext) -> None:
        """Needs several processes, as in `make run`; a single process must be started again."""
        parcel = await ctx.step("pack", self.build, idempotent=True)
        if ctx.attempt == 1:
            await ctx.send_status(f"{parcel} is packed. Now process {os.getpid()} dies.")
            await asyncio.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        await ctx.step("ship", self.build, idempotent=True)
        await ctx.complete(f"{parcel} was packed once, and shipped in attempt {ctx.attempt} by process {os.getpid()}.")

    async def book(self, ctx: TaskContext) -> None:
        key = ctx.idempotency_key("book")
        booking = await ctx.step("book", self.reserve, ctx.user_text, key, idempotent=True)
        await ctx.complete_json(booking)

    async def remember(self, ctx: TaskContext, word: str) -> None:
        words = await ctx.update_context(lambda known: [*(known or []), word])
        await ctx.respond(f"I remember {len(words)} word(s) now.")

    # Stand-ins for slow calls to external systems.

    async def reserve(self, time: str, key: str) -> dict[str, str]:
        """Book a table. The key identifies repeated calls."""
        await asyncio.sleep(0.5 * self.pace)
        return {"table": "by the window", "time": time, "reference": key}

    async def build(self) -> str:
        """Return a different result at each call."""
        await asyncio.sleep(0.3 * self.pace)
        return f"parcel {os.urandom(2).hex()}"

    async def pack(self) -> int:
        """Return the id of the process."""
        await asyncio.sleep(self.pace)
        return os.getpid()
