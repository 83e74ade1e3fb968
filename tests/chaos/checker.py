"""Compares the histories with the store: one function for each promise of the README."""

from __future__ import annotations

from tests.chaos import framework_promises, kernel_promises, state_promises, task_promises, turn_promises
from tests.chaos.final import Plain, Reading, Store, Violation
from tests.chaos.history import Histories

PLAIN: tuple[Plain, ...] = (
    task_promises.acknowledged_is_present,
    task_promises.sends_succeed,
    task_promises.repeats_lead_to_one_task,
    task_promises.logs_are_dense_with_one_end,
    task_promises.streams_show_what_is_stored,
    task_promises.one_holder_per_fence,
    task_promises.a_worker_that_lost_its_task_writes_no_more,
    task_promises.recorded_steps_are_not_repeated,
    task_promises.ends_stay,
    task_promises.acknowledged_is_found,
    task_promises.erased_is_gone,
    task_promises.owners_see_only_their_own,
    task_promises.webhooks_are_complete_and_in_order,
    state_promises.memory_is_linearizable,
    state_promises.pauses_are_taken_once,
    state_promises.results_are_decided_once,
    turn_promises.gates_hold_a_turn,
    turn_promises.stored_results_are_not_repeated,
)
READING: tuple[Reading, ...] = (
    task_promises.nothing_is_left_of_erased_tasks,
    kernel_promises.commits_are_whole,
    kernel_promises.a_check_finds_nothing,
    state_promises.events_are_kept,
    state_promises.updates_and_trajectories_are_kept,
    state_promises.artifacts_are_whole,
    state_promises.tasks_of_sessions_end_once,
    state_promises.contexts_are_the_merge_of_acknowledged_results,
    turn_promises.threads_of_turns_are_ordered,
    framework_promises.graph_threads_are_one_chain,
    framework_promises.session_items_are_kept_in_order,
    framework_promises.adk_events_and_state_are_one,
)


WITHOUT_THE_STORE: tuple[Plain, ...] = (
    task_promises.sends_succeed,
    task_promises.one_holder_per_fence,
    task_promises.recorded_steps_are_not_repeated,
    task_promises.owners_see_only_their_own,
    state_promises.memory_is_linearizable,
    state_promises.pauses_are_taken_once,
    state_promises.results_are_decided_once,
    turn_promises.gates_hold_a_turn,
    turn_promises.stored_results_are_not_repeated,
)


async def check(histories: Histories, store: Store, *, swept: bool = False) -> dict[str, list[Violation]]:
    """Return the violations of each promise. Data that was ``swept`` is not expected in the store."""
    store.erased = task_promises.erasable(histories)
    plain, reading = (WITHOUT_THE_STORE, ()) if swept else (PLAIN, READING)
    found = {promise.__name__: list(promise(histories, store)) for promise in plain}
    for each in reading:
        found[each.__name__] = await each(histories, store)
    return found
