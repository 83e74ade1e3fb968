"""What the agent does with a message. The kits say what they want by the beginning of its id.

The kit of 1.0 begins every id with ``tck-``; what has no line in the table completes. The kit of 0.3 wants tasks that
it can continue, cancel and look at, so that every other task asks for input.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from keelbolt.tasks import TaskContext, Worker

BEATS = 5
BEAT_SECONDS = 1.0  # BEATS of them: longer than twice the 2 s that the kits wait for a stream
WORK_SECONDS = 1.5

Act = Callable[[TaskContext], Awaitable[None]]


async def _complete(ctx: TaskContext) -> None:
    await ctx.respond("Hello from TCK")


async def _text(ctx: TaskContext) -> None:
    await ctx.complete("Generated text content")


async def _file(ctx: TaskContext) -> None:
    await ctx.emit_artifact(file_bytes=b"file content", filename="output.txt", media_type="text/plain", last_chunk=True)
    await ctx.complete()


async def _file_url(ctx: TaskContext) -> None:
    url = "https://example.com/output.txt"
    await ctx.emit_artifact(file_url=url, filename="output.txt", media_type="text/plain", last_chunk=True)
    await ctx.complete()


async def _data(ctx: TaskContext) -> None:
    await ctx.complete_json({"key": "value", "count": 42})


async def _message(ctx: TaskContext) -> None:
    await ctx.reply_directly("Direct message response")


async def _ask(ctx: TaskContext) -> None:
    await ctx.request_input("What next?")


async def _reject(ctx: TaskContext) -> None:
    await ctx.reject("rejected")


async def _chunks(ctx: TaskContext) -> None:
    await ctx.emit_text_artifact("chunk-1 ")
    await ctx.emit_text_artifact("chunk-2", append=True, last_chunk=True)
    await ctx.complete()


async def _last(ctx: TaskContext) -> None:
    for _ in range(BEATS):
        await asyncio.sleep(BEAT_SECONDS)
        await ctx.send_status("still at it")
    await ctx.complete()


async def _work(ctx: TaskContext) -> None:
    await asyncio.sleep(WORK_SECONDS)
    await ctx.request_input("What next?")


def _say(text: str) -> Act:
    async def act(ctx: TaskContext) -> None:
        await ctx.complete(text)

    return act


ACTS: dict[str, Act] = {
    "tck-complete-task": _complete,
    "tck-artifact-text": _text,
    "tck-artifact-file-url": _file_url,
    "tck-artifact-file": _file,
    "tck-artifact-data": _data,
    "tck-message-response": _message,
    "tck-input-required": _ask,
    "tck-reject-task": _reject,
    "tck-stream-001": _say("Stream hello from TCK"),
    "tck-stream-003": _say("Stream task lifecycle"),
    "tck-stream-ordering-001": _say("Ordered output"),
    "tck-stream-artifact-text": _say("Streamed text content"),
    "tck-stream-artifact-file": _file,
    "tck-stream-artifact-chunked": _chunks,
    "test-resubscribe-message-id": _last,
    "test-state-message-id": _work,
    "tck-": _complete,
    "": _ask,
}
"""The first line that a message id begins with counts."""


class Conforming(Worker):
    """Does what the kits ask for."""

    async def handle(self, ctx: TaskContext) -> None:
        await next(act for beginning, act in ACTS.items() if ctx.message_id.startswith(beginning))(ctx)
