"""Removes the data of a soak under unused keys. The agents sweep tasks, state and turns."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from keelbolt.data import Subject, erase
from keelbolt.errors import KeelboltError, SubjectNotFound
from keelbolt.google_adk import KeelboltSessionService
from keelbolt.kernel import open_storage
from keelbolt.langgraph import KeelboltSaver
from keelbolt.openai_agents import KeelboltSession
from tests.chaos.framework_user import APP, USER
from tests.chaos.history import ROTATION_SECONDS, History

KEPT = 3  # rotations


async def _run(url: str, folder: str) -> None:
    history, saver, adk = History(Path(folder), "sweeper"), KeelboltSaver(url), KeelboltSessionService(url)
    done = _rotation() - KEPT
    async with open_storage(url) as kernel:
        while True:
            while done < _rotation() - KEPT:
                done += 1
                asked = history.ask("sweep", rotation=done)
                with contextlib.suppress(KeelboltError):
                    for thread in ("graph-0", "graph-1"):
                        await saver.adelete_thread(f"{thread}-{done}")
                    await adk.delete_session(app_name=APP, user_id=USER, session_id=f"adk-{done}")
                    async with KeelboltSession(f"conversation-{done}", url) as session:
                        await session.clear_session()
                    with contextlib.suppress(SubjectNotFound):
                        await erase(kernel, Subject(kind="session", id=f"session-{done}"))
                    history.answer(asked, "sweep")
            await asyncio.sleep(ROTATION_SECONDS)


def _rotation() -> int:
    return int(time.monotonic() // ROTATION_SECONDS)


def run(url: str, folder: str) -> None:
    """Run until the process ends."""
    asyncio.run(_run(url, folder))
