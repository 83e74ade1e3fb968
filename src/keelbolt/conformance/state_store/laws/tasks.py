"""The tasks of sessions."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.state_store.samples import PAYLOAD, ids, seen
from keelbolt.conformance.state_store.subject import StateStoreCase, law


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
