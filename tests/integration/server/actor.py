"""The worker of these tests: it executes its message."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from keelbolt.auth import TokenAuthenticator
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig, ExtensionConfig, SkillConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from keelbolt.tasks.settings import TaskSettings
from keelbolt.tasks.worker import AnyWorker

TOKEN = "a-token-of-the-tests"


async def act(ctx: TaskContext) -> None:
    """Execute the message: `echo words`, `ask`, `count 300 [seconds]`, `wait`, `until file`, `direct words`, …"""
    word, _, rest = ctx.user_text.partition(" ")
    match word:
        case "ask" if ctx.turn == 1:
            await ctx.request_input("What is your name?")
        case "auth" if ctx.turn == 1:
            await ctx.request_auth("Sign in")
        case "count":
            number, _, pause = rest.partition(" ")
            for i in range(int(number)):
                await ctx.emit_text_artifact(f"{i} ", append=i > 0, last_chunk=i == int(number) - 1)
                if pause:
                    await asyncio.sleep(float(pause))
            await ctx.complete()
        case "wait":
            while not ctx.is_cancelled:  # noqa: ASYNC110 - there is nothing else to wait for
                await asyncio.sleep(0.01)
        case "until":
            while not Path(rest).exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
            await ctx.complete("there it is")
        case "stubborn":
            until = asyncio.get_running_loop().time() + 4
            while asyncio.get_running_loop().time() < until:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.05)
        case "quiet":
            await asyncio.sleep(float(rest))
            await ctx.complete("at last")
        case "steps":
            for step in range(int(rest)):
                await ctx.step(f"step {step}", asyncio.sleep, 0.5)
            await ctx.complete()
        case "direct":
            await ctx.reply_directly(rest)
        case "fail":
            await ctx.fail(rest)
        case "reject":
            await ctx.reject(rest)
        case "file":
            await ctx.emit_artifact(file_bytes=b"\x00\xff", filename="x.bin", media_type="application/octet-stream")
            await ctx.complete_json({"a": [1, None, "ä"]})
        case _:
            await ctx.complete(rest if word == "echo" else f"turn {ctx.turn}: {ctx.user_text}")


def agent(
    storage: str = "memory:",
    *,
    streaming: bool = True,
    push: bool = True,
    extended: bool = False,
    extensions: tuple[ExtensionConfig, ...] = (),
    task_settings: TaskSettings | None = None,
    settings: ServerSettings | None = None,
    worker: AnyWorker = act,
    **more: Any,
) -> A2AServer:
    """Return an agent with all features; with an extended card, it authenticates the caller of TOKEN."""
    if extended:
        more.setdefault("auth", TokenAuthenticator.of({TOKEN: "alice"}))
    card = AgentCardConfig(
        name="Actor",
        description="Does as asked",
        skills=[SkillConfig(id="act", name="Act", description="Does as asked", tags=["test"])],
        capabilities=CapabilitiesConfig(streaming=streaming, push_notifications=push, extended_agent_card=extended),
        extensions=extensions,
    )
    other = card.model_copy(update={"description": "Does as asked, for you"})
    return A2AServer(
        worker=worker,
        agent_card=card,
        storage=storage,
        extended_card=(lambda _caller: other) if extended else None,
        settings=settings or ServerSettings.of({}),
        task_settings=task_settings or TaskSettings.of({}, drain_seconds=0.2),
        **more,
    )
