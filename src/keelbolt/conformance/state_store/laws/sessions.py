"""The tasks of sessions, their updates, and steering events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.state_store.subject import PAYLOAD, StateStoreCase, ids, law, seen, steps


@law("tasks")
async def tasks_are_loaded(case: StateStoreCase) -> None:
    """A task is loaded with all its fields, with version and hash of its context snapshot."""
    task = case.task(trace_id="trace", result=dict(PAYLOAD), progress={"step": 1}, error="none")
    await case.store.save_task(task)
    equal([seen(found) for found in await case.store.list_tasks("session")], [seen(task)], "the tasks")


@law("tasks")
async def a_task_saved_again_is_one_task(case: StateStoreCase) -> None:
    """A task that is saved again is stored once, with its last values."""
    task = case.task()
    await case.store.save_task(task)
    await case.store.save_task(task)
    task.update_status(case.types.TaskStatus.COMPLETE)
    task.result = {"done": True}
    await case.store.save_task(task)
    equal([seen(found) for found in await case.store.list_tasks("session")], [seen(task)], "the tasks")


@law("tasks")
async def tasks_are_listed_in_the_order_of_first_saves(case: StateStoreCase) -> None:
    """Tasks are listed in the order of their first saves: a session resumes its last foreground task."""
    for name in ("c", "a", "b", "c"):
        await case.store.save_task(case.task(name))
    equal(ids(await case.store.list_tasks("session"), "task_id"), ["c", "a", "b"], "the tasks")


@law("tasks")
async def sessions_are_separate(case: StateStoreCase) -> None:
    """The same task id in two sessions is two tasks, and an unknown session has none."""
    for session in ("a", "b"):
        await case.store.save_task(case.task(session=session, description=session))
    for session in ("a", "b"):
        found = await case.store.list_tasks(session)
        equal(ids(found, "description"), [session], f"the tasks of session {session}")
    equal(list(await case.store.list_tasks("unknown")), [], "the tasks of an unknown session")


@law("tasks")
async def a_saved_task_is_a_copy(case: StateStoreCase) -> None:
    """Changes that a caller makes to a task it saved or loaded, or to its context, are not stored."""
    task = case.task(progress={"step": 1})
    await case.store.save_task(task)
    task.progress["step"] = 2
    task.status = case.types.TaskStatus.FAILED
    task.context_snapshot.llm_context["facts"].append("b")
    (found,) = await case.store.list_tasks("session")
    found.context_snapshot.llm_context["facts"].append("c")
    (found,) = await case.store.list_tasks("session")
    equal(found.progress, {"step": 1}, "the progress")
    equal(str(found.status.value), "PENDING", "the status")
    equal(found.context_snapshot.llm_context, {"facts": ["a"]}, "the context")


# -------------------------------------------------------------------------------------------------------------- updates


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


# ------------------------------------------------------------------------------------------------------------- steering


@law("steering")
async def steering_is_loaded(case: StateStoreCase) -> None:
    """Steering events are loaded with all their fields in the order in which they were saved."""
    events = [case.steering(number) for number in range(3)]
    for event in events:
        await case.store.save_steering(event)
    found = await case.store.list_steering("session")
    equal([seen(event) for event in found], [seen(event) for event in events], "the events")
    equal(list(await case.store.list_steering("unknown")), [], "the events of an unknown session")


@law("steering")
async def steering_is_cut_to_size(case: StateStoreCase) -> None:
    """A stored payload keeps the five limits: depth, keys, items, length of texts, and total bytes."""
    deep: Any = "end"
    for _ in range(10):
        deep = {"a": deep}
    payload: dict[str, Any] = {
        "text": "x" * 5000,
        "deep": deep,
        "wide": dict.fromkeys(map(str, range(70)), 0),
        "long": [0] * 60,
    }
    large = {"text": "x", **{str(number): "y" * 4096 for number in range(6)}}
    await case.store.save_steering(case.steering(1, payload=payload))
    await case.store.save_steering(case.steering(2, payload=large))
    first, second = ids(await case.store.list_steering("session"), "payload")
    expect(len(first["text"]) <= 4096, f"a text of {len(first['text'])} characters was stored")
    expect(len(first["wide"]) <= 65, f"an object of {len(first['wide'])} keys was stored")
    expect(len(first["long"]) <= 51, f"a list of {len(first['long'])} items was stored")
    expect("end" not in json.dumps(first), "more than 6 levels were stored")
    size = len(json.dumps(second, ensure_ascii=False).encode())
    expect(size <= 16_384, f"a payload of {size} bytes was stored")


@law("steering")
async def steering_has_cursors(case: StateStoreCase) -> None:
    """since_id is exclusive, an unknown since_id is ignored, and task_id is applied before the limit."""
    for number in range(6):
        await case.store.save_steering(case.steering(number, task="ab"[number % 2]))

    async def listed(**wanted: Any) -> list[str]:
        return ids(await case.store.list_steering("session", **wanted), "event_id")

    equal(await listed(since_id="event-3"), ["event-4", "event-5"], "the events after the fourth")
    equal(len(await listed(since_id="unknown")), 6, "the number of events after an unknown one")
    equal(await listed(task_id="a", limit=2), ["event-2", "event-4"], "the last two events of a task")
    equal(await listed(task_id="a", since_id="event-1"), ["event-2", "event-4"], "those after one of another task")


@law("steering")
async def steering_pages_return_every_event(case: StateStoreCase) -> None:
    """Pages, each after the last event of the one before, return every event once."""
    for number in range(5):
        await case.store.save_steering(case.steering(number))
    found: list[str] = ["event-0"]
    while page := ids(await case.store.list_steering("session", since_id=found[-1], limit=2), "event_id"):
        found += page
        if len(found) > 5:
            break
    equal(found, [f"event-{number}" for number in range(5)], "the events of all pages")


@law("steering")
async def a_steering_event_saved_again_is_stored_once(case: StateStoreCase) -> None:
    """An event whose event_id is stored in its session is not stored twice."""
    for number in (0, 1, 0):
        await case.store.save_steering(case.steering(number))
    equal(ids(await case.store.list_steering("session"), "event_id"), ["event-0", "event-1"], "the events")


@law("steering")
async def invalid_steering_is_stored(case: StateStoreCase) -> None:
    """An event that is not valid for its type is stored, cut to size: a store records every sent event."""
    await case.store.save_steering(case.steering(1, payload={"active_tasks": "x" * 5000}))
    found = await case.store.list_steering("session")
    equal(ids(found, "event_id"), ["event-1"], "the events")
    expect(len(found[0].payload["active_tasks"]) <= 4096, "the payload was not cut to size")
