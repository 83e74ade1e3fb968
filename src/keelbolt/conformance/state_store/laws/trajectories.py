"""Trajectories of planners."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.state_store.subject import StateStoreCase, law


@law("trajectories")
async def trajectories_are_loaded(case: StateStoreCase) -> None:
    """A trajectory is loaded as it was saved."""
    trajectory = case.trajectory()
    await case.store.save_trajectory("trace", "session", trajectory)
    found = await case.store.get_trajectory("trace", "session")
    equal(found.serialise(), trajectory.serialise(), "the trajectory")


@law("trajectories")
async def a_trajectory_of_another_session_is_none(case: StateStoreCase) -> None:
    """An unknown trace, or the trace of another session, is None."""
    await case.store.save_trajectory("trace", "session", case.trajectory())
    equal(await case.store.get_trajectory("trace", "other"), None, "the trajectory in another session")
    equal(await case.store.get_trajectory("unknown", "session"), None, "an unknown trajectory")


@law("trajectories")
async def traces_are_listed_newest_first(case: StateStoreCase) -> None:
    """list_traces returns at most ``limit`` traces of a session, the last saved first."""
    for trace in ("a", "b", "c"):
        await case.store.save_trajectory(trace, "session", case.trajectory())
    await case.store.save_trajectory("d", "other", case.trajectory())
    equal(list(await case.store.list_traces("session")), ["c", "b", "a"], "the traces")
    equal(list(await case.store.list_traces("session", limit=2)), ["c", "b"], "the last two traces")
    equal(list(await case.store.list_traces("unknown")), [], "the traces of an unknown session")


@law("trajectories")
async def a_trajectory_saved_again_is_the_newest(case: StateStoreCase) -> None:
    """A trajectory that is saved again replaces the one before, and its trace is listed first, once."""
    for trace, query in (("a", "1"), ("b", "2"), ("a", "3")):
        await case.store.save_trajectory(trace, "session", case.trajectory(query))
    equal(list(await case.store.list_traces("session")), ["a", "b"], "the traces")
    equal((await case.store.get_trajectory("a", "session")).query, "3", "the query of the trajectory")


@law("trajectories")
async def one_trace_in_two_sessions_is_two_trajectories(case: StateStoreCase) -> None:
    """A trace that a second session saves too still belongs to the first."""
    for session in ("a", "b"):
        await case.store.save_trajectory("trace", session, case.trajectory(session))
    for session in ("a", "b"):
        found = await case.store.get_trajectory("trace", session)
        equal(None if found is None else found.query, session, f"the trajectory of session {session}")
