"""Steering events."""

from __future__ import annotations

import json
from typing import Any

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.state_store.samples import ids, seen
from keelbolt.conformance.state_store.subject import StateStoreCase, law


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
