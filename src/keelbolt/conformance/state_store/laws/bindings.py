"""Bindings of traces to remote tasks, and the conversations that they belong to."""

from __future__ import annotations

from typing import Any

from keelbolt.conformance.expect import equal
from keelbolt.conformance.state_store.samples import ids, seen
from keelbolt.conformance.state_store.subject import StateStoreCase, law


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
