"""The agent of compose.yaml: files forms, one durable step each."""

from __future__ import annotations

import asyncio

from keelbolt import TaskContext


async def clerk(ctx: TaskContext) -> str:
    """Files the number of forms in the message."""
    count = int(ctx.user_text)
    for number in range(1, count + 1):
        await ctx.step(f"form {number}", asyncio.sleep, 0.5, idempotent=True)  # stand-in for filing a form
        await ctx.send_status(f"{number} of {count} filed")
    return f"{count} forms are filed, in {ctx.attempt} attempt(s)"
