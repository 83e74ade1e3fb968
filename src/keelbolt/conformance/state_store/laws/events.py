"""Events of flows, their history, and the bindings of traces to remote tasks."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.state_store.subject import CAPABILITIES, PAYLOAD, StateStoreCase, ids, law, seen

# The capabilities of the specification whose methods are called and awaited.
CALLED = ("base", "planner_state", "memory_state", "tasks", "steering", "trajectories", "planner_events")


@law()
async def events_are_loaded(case: StateStoreCase) -> None:
    """load_history returns events with all their fields."""
    event = case.event(1702857600.123)
    await case.store.save_event(event)
    history = await case.store.load_history("trace")
    equal([seen(found) for found in history], [seen(event)], "the history")


@law()
async def an_unknown_trace_has_no_history(case: StateStoreCase) -> None:
    """The history of an unknown trace is empty, without an error."""
    equal(list(await case.store.load_history("nonexistent")), [], "the history")


@law()
async def history_is_ordered_by_time(case: StateStoreCase) -> None:
    """Events are ordered by ts, not by the order of saving."""
    for ts in (3.0, 1.0, 2.0):
        await case.store.save_event(case.event(ts))
    equal(ids(await case.store.load_history("trace"), "ts"), [1.0, 2.0, 3.0], "the times")


@law()
async def events_of_one_moment_keep_their_order(case: StateStoreCase) -> None:
    """Events with the same ts are in the order in which they were saved."""
    nodes = [f"node-{number}" for number in (5, 3, 9, 1)]
    for node in nodes:
        await case.store.save_event(case.event(node=node))
    equal(ids(await case.store.load_history("trace"), "node_name"), nodes, "the nodes")


@law()
async def an_event_saved_again_is_stored_once(case: StateStoreCase) -> None:
    """A repeated save of an event does not fail, and the event is stored once."""
    for _ in range(3):
        await case.store.save_event(case.event())
    equal(len(await case.store.load_history("trace")), 1, "the number of copies of the event")


@law()
async def different_events_are_all_stored(case: StateStoreCase) -> None:
    """Events that differ only in payload, kind, node or time are different events."""
    events = [
        case.event(),
        case.event(payload={"latency_ms": 101}),
        case.event(kind="node_error"),
        case.event(node="other"),
        case.event(node_id="node-2"),
        case.event(2.0),
    ]
    for event in events:
        await case.store.save_event(event)
    equal(len(await case.store.load_history("trace")), len(events), "the number of events")


@law()
async def traces_are_separate(case: StateStoreCase) -> None:
    """A history has the events of its trace only."""
    for trace in ("a", "b", "ab"):
        await case.store.save_event(case.event(trace=trace))
    for trace in ("a", "b", "ab"):
        equal(ids(await case.store.load_history(trace), "trace_id"), [trace], f"the history of {trace}")


@law()
async def events_without_a_trace_are_saved(case: StateStoreCase) -> None:
    """An event with trace_id None is saved, and is in no other trace's history."""
    await case.store.save_event(case.event(trace=None))
    await case.store.save_event(case.event())
    equal(ids(await case.store.load_history("trace"), "trace_id"), ["trace"], "the history of a trace")


@law()
async def unknown_kinds_are_stored(case: StateStoreCase) -> None:
    """Kinds are an open set: an unknown kind is stored unchanged."""
    kinds = ["session.task", "remote_stream_event", "something else entirely"]
    for ts, kind in enumerate(kinds):
        await case.store.save_event(case.event(float(ts), kind=kind))
    equal(ids(await case.store.load_history("trace"), "kind"), kinds, "the kinds")


@law()
async def payloads_are_lossless(case: StateStoreCase) -> None:
    """A payload is loaded as it was saved: deep, empty, with large numbers and every character."""
    await case.store.save_event(case.event(payload=copy.deepcopy(PAYLOAD)))
    (found,) = await case.store.load_history("trace")
    equal(dict(found.payload), PAYLOAD, "the payload")


@law()
async def a_saved_event_is_a_copy(case: StateStoreCase) -> None:
    """Changes that a caller makes to an event after saving it are not stored."""
    event = case.event(payload={"list": [1]})
    await case.store.save_event(event)
    event.payload["list"].append(2)
    event.payload["more"] = True
    (found,) = await case.store.load_history("trace")
    equal(dict(found.payload), {"list": [1]}, "the payload")


@law()
async def a_history_is_a_sequence(case: StateStoreCase) -> None:
    """load_history returns a sequence: it has a length and can be read twice."""
    await case.store.save_event(case.event())
    history = await case.store.load_history("trace")
    expect(hasattr(history, "__len__") and hasattr(history, "__getitem__"), "the history is no sequence")
    equal([seen(found) for found in history], [seen(found) for found in history], "the history, read again")


@law("bulk")
async def save_events_bulk_is_atomic(case: StateStoreCase) -> None:
    """save_events_bulk saves all of its events; if it can't save one of them, it raises and saves none."""
    events = [case.event(float(number)) for number in range(450)]
    refused = False
    try:
        await case.store.save_events_bulk([*events[:400], object(), *events[401:]])
    except Exception:  # noqa: BLE001  (each store has errors of its own)
        refused = True
    expect(refused, "save_events_bulk accepted 450 values, of which one is no event")
    equal(len(await case.store.load_history("trace")), 0, "the number of events after the refusal")
    await case.store.save_events_bulk(events)
    equal(ids(await case.store.load_history("trace"), "ts"), [event.ts for event in events], "the times")


@law("history_pages")
async def a_long_history_is_read_in_pages(case: StateStoreCase) -> None:
    """iter_history and load_history_page return every event once, in the order of arrival."""
    times = [float(number) for number in (5, 3, 9, 1, 7, 2, 8)]
    for ts in times:
        await case.store.save_event(case.event(ts))
    equal([event.ts async for event in case.store.iter_history("trace")], times, "the times")
    equal([event.ts async for event in case.store.iter_history("unknown")], [], "the times of an unknown trace")
    found: list[float] = []
    position: int | None = 0
    while position is not None and len(found) < 20:
        page = await case.store.load_history_page("trace", after=position, limit=2)
        found += ids(page.events, "ts")
        position = page.next
    equal(found, times, "the times of all pages")


@law()
async def methods_are_coroutine_functions(case: StateStoreCase) -> None:
    """inspect.iscoroutinefunction recognises the methods, so that AsyncMock(spec=…) can replace the store."""
    methods = [name for capability in CALLED for name in CAPABILITIES[capability] if case.can(capability)]
    plain = [name for name in methods if not inspect.iscoroutinefunction(getattr(case.store, name))]
    equal(plain, [], "the methods that are not recognised")


# ------------------------------------------------------------------------------------------------------------- bindings


@law()
async def bindings_are_saved(case: StateStoreCase) -> None:
    """A binding can be saved once, again and changed, with a context and without, without an error."""
    for context in ("context", None):
        for url in ("http://worker:8080", "http://worker:8080", "http://other:8080"):
            await case.store.save_remote_binding(case.binding(context=context, agent_url=url))


def talk(case: StateStoreCase, **more: Any) -> Any:
    return case.binding(**{"router_session_id": "session", "remote_skill": "skill", **more})


async def found(case: StateStoreCase, **more: Any) -> Any:
    wanted = {"router_session_id": "session", "agent_url": "http://worker:8080", "remote_skill": "skill", **more}
    return await case.store.find_binding(**wanted)


@law("conversations")
async def an_open_binding_is_found(case: StateStoreCase) -> None:
    """find_binding returns the binding of this session, agent and skill with all its fields, or None."""
    binding = talk(case, last_remote_task_id="last", metadata={"a": [1]})
    await case.store.save_remote_binding(binding)
    equal(seen(await found(case)), seen(binding), "the binding")
    equal(await found(case, remote_skill="other"), None, "the binding of another skill")
    equal(await found(case, router_session_id="other"), None, "the binding of another session")
    equal(await found(case, agent_url="http://other"), None, "the binding of another agent")


@law("conversations")
async def the_last_open_binding_is_found(case: StateStoreCase) -> None:
    """Of several open bindings of one conversation, find_binding returns the one that was saved last."""
    for task in ("1", "2"):
        await case.store.save_remote_binding(talk(case, task=task))
    equal((await found(case)).task_id, "2", "the task of the binding")


@law("conversations")
async def an_ended_binding_is_not_found(case: StateStoreCase) -> None:
    """A binding that was marked or saved as terminal is not found; marking an unknown one is no error."""
    await case.store.save_remote_binding(talk(case))
    await case.store.mark_binding_terminal(trace_id="trace", context_id="context", task_id="task")
    await case.store.mark_binding_terminal(trace_id="unknown", context_id=None, task_id="task")
    await case.store.save_remote_binding(talk(case, task="2", is_terminal=True))
    equal(await found(case), None, "the binding")


@law("conversations")
async def bindings_of_others_are_not_found(case: StateStoreCase) -> None:
    """A binding of a tenant or user is found only for that tenant or user."""
    await case.store.save_remote_binding(talk(case, tenant_id="t", user_id="u"))
    equal(await found(case), None, "the binding without a user")
    equal(await found(case, tenant_id="t", user_id="other"), None, "the binding for another user")
    equal((await found(case, tenant_id="t", user_id="u")).task_id, "task", "the binding for its user")


@law("conversations")
async def bindings_are_keyed_by_trace_context_and_task(case: StateStoreCase) -> None:
    """A binding saved again replaces itself; with another context, or none, it is another binding."""
    for context in ("context", None, "context", None):
        await case.store.save_remote_binding(talk(case, context=context))
    await case.store.save_remote_binding(talk(case, router_session_id="other", task="other"))
    listed = await case.store.list_bindings(router_session_id="session")
    equal(sorted(map(str, ids(listed, "context_id"))), ["None", "context"], "the contexts of the session's bindings")
    equal(list(await case.store.list_bindings(router_session_id="unknown")), [], "bindings of an unknown session")
