"""The agent of compose.yaml: files forms, one durable step each."""

from __future__ import annotations

import asyncio

from keelbolt import TaskContext


async def clerk(ctx: TaskContext) -> str:
    """Files as many forms as the message says."""
    count = int(ctx.user_text)
    for number in range(1, count + 1):
        await ctx.step(f"form {number}", asyncio.sleep, 0.5, idempotent=True)  # stands for a form that is filed
        await ctx.send_status(f"{number} of {count} filed")
    return f"{count} forms are filed, in {ctx.attempt} attempt(s)"
