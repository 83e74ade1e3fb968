"""An agent that asks a question, reads pages and writes a report; after a kill, no page is read twice.

    python examples/research_agent.py "knots" --answer long --kill

One process is the client: it sends the message, prints the stream, and answers the agent's question (from the terminal
without --answer). Another process runs the worker. With --kill it gets SIGKILL after the second page, and a third
process takes over. The first half is the agent, the second half is the client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from keelbolt.kernel import Entry, new_id
from keelbolt.tasks import Message, Part, Role, TaskContext, TaskEngine, TaskSettings, TaskSnapshot, TaskState, Worker

PAGES = ("their history", "their uses", "their mistakes")
LEASE_SECONDS = 1.0


# --------------------------------------------------------------------------------------------------------- the agent


class Researcher(Worker):
    """Asks for the length of the report, reads some pages, and writes the report."""

    async def handle(self, ctx: TaskContext) -> None:
        if ctx.turn == 1:
            await ctx.request_input(f"A short or a long report about {ctx.user_text}?")
            return
        topic = ctx.history[0].text
        found = []
        for page in PAGES:
            await ctx.send_status(f"reading about {page}")
            # Reading twice is harmless, so a step in doubt is repeated; a recorded step is not.
            found.append(await ctx.step(f"read {page}", read, topic, page, idempotent=True))
        for text in found if "long" in ctx.user_text.lower() else found[:1]:
            for word in text.split():
                await ctx.emit_text_artifact(word + " ", artifact_id="report", append=True)
        await ctx.emit_text_artifact("The end.", artifact_id="report", append=True, last_chunk=True)
        await ctx.complete()


async def read(topic: str, page: str) -> str:
    """Stand-in for a slow or expensive call."""
    await asyncio.sleep(0.2)
    return f"Of {topic}, {page} could fill a book."


async def work(url: str) -> None:
    """Run tasks until the process is stopped."""
    settings = TaskSettings.of(lease_seconds=LEASE_SECONDS)
    async with TaskEngine.on(url, Researcher(), settings=settings):
        await asyncio.Event().wait()


# -------------------------------------------------------------------------------------------------------- the client


class Workers:
    """The agent's process, which can be started again after a kill."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process: Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(sys.executable, __file__, "--work", self._url)

    async def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            await self._process.wait()


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Workers]:
    workers = Workers(url)
    await workers.start()
    try:
        yield workers
    finally:
        await workers.stop()


async def ask(url: str, topic: str, answer: str | None, *, kill: bool) -> None:
    """Send the topic, print the stream, and answer the agent's question."""
    async with TaskEngine.on(url) as engine, running(url) as workers:
        sent = await engine.tasks.send(say(topic))
        task_id, entries, reads = sent.task.task_id, 0, 0
        async for event in engine.tasks.follow(task_id, after=0):
            if isinstance(event, TaskSnapshot):  # only after a gap; this log is never trimmed
                continue
            entries = event.seq
            state, text = told(event)
            if event.kind == "artifact":
                print(text, end="", flush=True)
            elif text:
                print(f"  {text}")
            if state is TaskState.input_required:
                if answer is None:
                    answer = await asyncio.to_thread(input, "> ")
                await engine.tasks.send(say(answer, task_id))
            if reported(event):
                reads += 1
                if kill and reads == 2:
                    await workers.stop(signal.SIGKILL)
                    print("  … killed; another process takes over when the lease expires")
                    await workers.start()
        stored = await engine.tasks.load(task_id)
        print(f"\n{stored.state.name}: {entries} entries in the log, {reads} pages read")


def say(text: str, task_id: str | None = None) -> Message:
    return Message(message_id=new_id(), role=Role.user, parts=[Part(text=text)], task_id=task_id)


def told(event: Entry) -> tuple[TaskState | None, str]:
    """Return the state and the text of an entry, if it has them."""
    body = json.loads(event.data)
    if event.kind == "artifact":
        return None, "".join(part["text"] for part in body["artifact"]["parts"])
    if event.kind in ("status", "said"):
        parts = body["status"].get("message", {}).get("parts", [])
        return TaskState(body["status"]["state"]), " ".join(part.get("text", "") for part in parts)
    return None, ""


def reported(event: Entry) -> bool:
    """Return whether this entry is the result of a step."""
    return event.kind == "step" and json.loads(event.data)["state"] == "done"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("topic", nargs="?", default="anchors")
    parser.add_argument("--answer", help="the answer to the agent's question (default: read from the terminal)")
    parser.add_argument("--kill", action="store_true", help="kill the agent's process during the task")
    parser.add_argument("--storage", help="the URL of the storage (default: a temporary file)")
    parser.add_argument("--work", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        asyncio.run(work(options.work))
        return
    with tempfile.TemporaryDirectory(prefix="keelbolt-example-") as directory:
        url = options.storage or f"sqlite:///{Path(directory) / 'tasks.db'}"
        asyncio.run(ask(url, options.topic, options.answer, kill=options.kill))


if __name__ == "__main__":
    main()
