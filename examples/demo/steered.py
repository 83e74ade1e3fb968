"""Steering of a running task: pause and resume, another topic, an early end, or the death of its process.

The button "Kill its process" of the explorer is declared by this agent in its card; it calls the operations API:

    POST /keelbolt/v1/tasks/{task_id}/steer   {"kind": "inject", "payload": {"kill": true}}

It reaches whatever process holds the task, through the task's inbox. No server of Keelbolt knows what it means: the
worker below does it, because it hears it.
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
    description="How a task of this agent can be steered while it works.",
    params={
        "buttons": [
            {
                "label": "Change the topic",
                "text": "A task that writes continues about something else.",
                "kind": "redirect",
                "schema": {  # people fill in fields; what they write is the payload
                    "type": "object",
                    "required": ["topic"],
                    "additionalProperties": False,
                    "properties": {"topic": {"type": "string", "title": "Topic", "minLength": 2, "maxLength": 80}},
                },
            },
            {
                "label": "Be brief",
                "text": "A task that writes ends with its next sentence.",
                "kind": "inject",
                "payload": {"brief": True},
            },
            {
                "label": "Kill its process",
                "text": "The process that runs this task dies at once (kill -9). Another one takes over: on SQLite "
                "within a second, on other engines when the lease of the process has run out.",
                "kind": "inject",
                "payload": {"kill": True},
                "danger": True,
                "tab": "waterfall",
            },
        ]
    },
)


class Steered:
    """How a task was steered so far."""

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
        """Once for each time that it was told: a turn that is run again hears it again, from the first."""
        self._kills += 1
        told = False

        def hear() -> None:
            nonlocal told
            told = True

        await self._ctx.step(f"told to die {self._ctx.turn}.{self._kills}", hear)  # recorded: not done twice
        if told:
            await asyncio.sleep(0.2)  # whoever pressed the button, perhaps of this very process, is answered first
            os.kill(os.getpid(), signal.SIGKILL)


@contextlib.asynccontextmanager
async def steered(ctx: TaskContext) -> AsyncIterator[Steered]:
    """Listen while the task works."""
    found = Steered(ctx)
    listening = asyncio.create_task(found.listen())
    try:
        yield found
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
