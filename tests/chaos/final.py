"""The store after a campaign, with helpers for the promises."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from keelbolt.auth.principal import Principal
from keelbolt.kernel import Entry, Kernel
from keelbolt.tasks import TaskEngine
from keelbolt.tasks.families import EVENTS
from keelbolt.tasks.listing import ListTasksQuery
from tests.chaos.agent import OWNERS
from tests.chaos.history import Asked, Histories

Violation = tuple[str, list[Any]]


@dataclass(slots=True)
class Store:
    """The store after a campaign, read once."""

    kernel: Kernel
    url: str
    logs: dict[str, list[Entry]] = field(default_factory=dict)  # by task
    owners: dict[str, str] = field(default_factory=dict)
    messages: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # message id: tasks
    erased: frozenset[str] = frozenset()  # tasks that a process tried to erase, or that a sweep may have erased


async def read_store(kernel: Kernel, url: str) -> Store:
    """Read all tasks with their logs."""
    store = Store(kernel, url)
    async with TaskEngine(kernel, None) as engine:
        for owner in OWNERS:
            principal = Principal(owner)
            token: str | None = None
            while True:
                page = await engine.tasks.list(ListTasksQuery(page_size=100, page_token=token), principal)
                for task in page.tasks:
                    await _read_task(store, principal, task)
                token = page.next_page_token
                if not token:
                    break
    return store


async def _read_task(store: Store, principal: Principal, task: Any) -> None:
    task_id = task["id"] if isinstance(task, dict) else json.loads(task)["id"]
    entries: list[Entry] = []
    while True:
        page = await store.kernel.read_log(
            principal.partition, EVENTS, task_id, after=entries[-1].seq if entries else None
        )
        entries += page.entries
        if not page.entries or entries[-1].seq >= page.head:
            break
    store.logs[task_id] = entries
    store.owners[task_id] = principal.owner
    first = next(entry for entry in entries if entry.kind == "message")
    store.messages[json.loads(first.data)["messageId"]].append(task_id)


Plain = Callable[[Histories, Store], Iterator[Violation]]
Reading = Callable[[Histories, Store], Awaitable[list[Violation]]]


def both(asked: Asked) -> list[Any]:
    return [asked.asked, asked.answer]


def began_after(histories: Histories, effect: dict[str, Any], task: str, recorded: dict[str, Any]) -> bool:
    """Return whether the run with this effect started after its record existed.

    A run that started earlier and lost its task may still have the effect: fences do not cover external systems.
    """
    runs = [note["at"] for note in histories.runs_of(task) if note["by"] == effect["by"] and note["at"] <= effect["at"]]
    return bool(runs) and float(max(runs)) > float(recorded["at"])
