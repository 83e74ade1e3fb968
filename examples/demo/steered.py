"""Steering of a running task: pause, resume, change the topic, end early, or kill its process.

This agent's card declares the explorer's button "Kill its process", which calls the operations API:

    POST /keelbolt/v1/tasks/{task_id}/steer   {"kind": "inject", "payload": {"kill": true}}

The event reaches the process that holds the task through the task's inbox. Keelbolt does not interpret it; the worker
below does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

from keelbolt.protocol.card import ExtensionConfig
from keelbolt.tasks import TaskContext

BUTTONS = ExtensionConfig(
    uri="urn:keelbolt:a2a:steering:v1",
    description="Steering of running tasks of this agent.",
    params={
        "buttons": [
            {
                "label": "Change the topic",
                "text": "A writing task continues with another topic.",
                "kind": "redirect",
                "schema": {  # rendered as a form; its values are the payload
                    "type": "object",
                    "required": ["topic"],
                    "additionalProperties": False,
                    "properties": {"topic": {"type": "string", "title": "Topic", "minLength": 2, "maxLength": 80}},
                },
            },
            {
                "label": "Be brief",
                "text": "A writing task ends with its next sentence.",
                "kind": "inject",
                "payload": {"brief": True},
            },
            {
                "label": "Kill its process",
                "text": "The process that runs this task is killed (kill -9). When its lease expires, in a few "
                "seconds, another process takes over.",
                "kind": "inject",
                "payload": {"kill": True},
                "danger": True,
                "tab": "waterfall",
            },
        ]
    },
)


class Steered:
    """The steering of a task so far."""

    def __init__(self, ctx: TaskContext) -> None:
        self.topic = ""
        self.brief = False
        self._ctx = ctx
        self._kills = 0
        self._resumed = asyncio.Event()
        self._resumed.set()

    async def paused(self) -> None:
        """Wait while the task is paused."""
        await self._resumed.wait()

    async def listen(self) -> None:
        async for event in self._ctx.inbox:
            if event.kind == "redirect":
                self.topic = str(event.payload.get("topic") or event.payload.get("text") or "something else")
            elif event.kind == "pause":
                self._resumed.clear()
            elif event.kind == "resume":
                self._resumed.set()
            elif event.payload.get("brief"):
                self.brief = True
            elif event.payload.get("kill"):
                await self._die()

    async def _die(self) -> None:
        """Kill the process once per event: a repeated turn receives the same events again."""
        self._kills += 1
        new = False

        def mark() -> None:
            nonlocal new
            new = True

        await self._ctx.step(f"kill {self._ctx.turn}.{self._kills}", mark)  # recorded, so not repeated
        if new:
            await asyncio.sleep(0.2)  # lets this process respond to the caller first
            os.kill(os.getpid(), signal.SIGKILL)


@contextlib.asynccontextmanager
async def steered(ctx: TaskContext) -> AsyncIterator[Steered]:
    """Handle steering while the task runs."""
    found = Steered(ctx)
    listening = asyncio.create_task(found.listen())
    try:
        yield found
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
