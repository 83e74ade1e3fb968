"""A long job: pages are rendered once each, progress is shown, and a cancel leaves no files behind."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

from examples.workers import outside
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext


async def printer(ctx: TaskContext) -> None:
    pages, folder, done = int(ctx.user_text), Path(f"{outside.LEDGER}.{ctx.task_id}"), False
    try:
        for page in range(pages):
            render = partial(outside.render, str(folder), page)
            await ctx.step(f"page {page}", partial(ctx.run_sync, render), idempotent=True)
            await ctx.send_status(f"{page + 1} of {pages} pages")
        book = "".join((folder / f"{page}.txt").read_text() for page in range(pages))
        await ctx.emit_file(book.encode(), filename="book.txt")
        await ctx.complete()
        done = True
    finally:
        if done or ctx.is_cancelled:  # otherwise another process continues, and needs the pages
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    card = AgentCardConfig(name="Printer", description="Renders pages", capabilities=CapabilitiesConfig(streaming=True))
    A2AServer(worker=printer, agent_card=card, storage=sys.argv[1]).run(port=int(sys.argv[2]))
