"""Stand-ins for external systems: a service with a ledger, and the output of a model."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

LEDGER = Path(os.environ.get("LEDGER", "ledger.txt"))
PACE_SECONDS = 0.05
ANSWER = "The order is placed. It arrives on Monday morning, well before the tea is cold, and the bill comes with it."


async def words() -> AsyncIterator[str]:
    """Yield the answer of a model, word by word."""
    for word in ANSWER.split(" "):
        await asyncio.sleep(PACE_SECONDS)
        yield f"{word} "


async def order(item: str, key: str) -> str:
    """Place an order, slowly. The service accepts each key once."""
    _note(f"{key} ordered {item}")
    await asyncio.sleep(4 * PACE_SECONDS)
    return f"{item} is ordered"


def render(folder: str, page: int) -> None:
    """Write a page into a folder, slowly."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    time.sleep(4 * PACE_SECONDS)
    (path / f"{page}.txt").write_text(f"page {page}\n")


def _note(line: str) -> None:
    if not LEDGER.exists() or line not in LEDGER.read_text().splitlines():
        with LEDGER.open("a") as file:
            file.write(f"{line}\n")
