"""The updates of tasks, and cursors."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import equal
from keelbolt.conformance.state_store.samples import seen, steps
from keelbolt.conformance.state_store.subject import StateStoreCase, law


async def saved(case: StateStoreCase, count: int, *, tasks: tuple[str, ...] = ("task",)) -> None:
    for number in range(count):
        await case.store.save_update(case.update(number, task=tasks[number % len(tasks)]))


@law("tasks")
async def updates_are_loaded(case: StateStoreCase) -> None:
    """Updates are loaded with all their fields in the order in which they were saved."""
    updates = [case.update(number) for number in range(5)]
    for update in updates:
        await case.store.save_update(update)
    found = await case.store.list_updates("session")
    equal([seen(update) for update in found], [seen(update) for update in updates], "the updates")
    equal(list(await case.store.list_updates("unknown")), [], "the updates of an unknown session")


@law("tasks")
async def a_cursor_is_exclusive(case: StateStoreCase) -> None:
    """since_id lists the updates after that update, without it."""
    await saved(case, 5)
    equal(steps(await case.store.list_updates("session", since_id="update-2")), [3, 4], "the updates after the third")
    equal(steps(await case.store.list_updates("session", since_id="update-4")), [], "the updates after the last")


@law("tasks")
async def an_unknown_cursor_is_ignored(case: StateStoreCase) -> None:
    """An unknown since_id is ignored."""
    await saved(case, 3)
    equal(steps(await case.store.list_updates("session", since_id="unknown")), [0, 1, 2], "the updates")


@law("tasks")
async def cursors_return_every_update(case: StateStoreCase) -> None:
    """Pages, each after the last update of the one before, return every update once."""
    await saved(case, 7)
    found: list[int] = []
    cursor = "update-0"
    while page := steps(await case.store.list_updates("session", since_id=cursor, limit=2)):
        found += page
        cursor = f"update-{page[-1]}"
        if len(found) > 7:
            break
    equal(found, [1, 2, 3, 4, 5, 6], "the updates of all pages")


@law("tasks")
async def without_a_cursor_the_last_are_listed(case: StateStoreCase) -> None:
    """A limit without a cursor lists the last updates, oldest first."""
    await saved(case, 5)
    equal(steps(await case.store.list_updates("session", limit=2)), [3, 4], "the last two updates")


@law("tasks")
async def the_filter_is_applied_before_the_limit(case: StateStoreCase) -> None:
    """With a task_id, the limit counts only updates of that task."""
    await saved(case, 12, tasks=("a", "b", "b"))
    equal(steps(await case.store.list_updates("session", task_id="a", limit=2)), [6, 9], "the last two of the task")
    found = await case.store.list_updates("session", task_id="a", since_id="update-1")
    equal(steps(found), [3, 6, 9], "those after an update of another task")


@law("tasks")
async def an_update_saved_again_is_stored_once(case: StateStoreCase) -> None:
    """An update_id is stored once per session; in another session it is another update."""
    for number in (0, 1, 0):
        await case.store.save_update(case.update(number))
    await case.store.save_update(case.update(0, session="other"))
    equal(steps(await case.store.list_updates("session")), [0, 1], "the updates")
    equal(steps(await case.store.list_updates("other")), [0], "the updates of the other session")


@law("tasks")
async def concurrent_updates_keep_their_order(case: StateStoreCase) -> None:
    """Updates whose saves run concurrently are listed in the order of the calls."""
    await asyncio.gather(*(asyncio.create_task(case.store.save_update(case.update(number))) for number in range(30)))
    equal(steps(await case.store.list_updates("session")), list(range(30)), "the updates")
