"""The specification's checklist for an implementation, filled in by a report."""

from __future__ import annotations

from typing import Final

from keelbolt.conformance.suite import ConformanceReport

# Each item with the laws that check it; an item without laws needs a manual check.
ITEMS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "Required methods": {
        "save_event(event) implemented": ("events_are_loaded",),
        "load_history(trace_id) implemented": ("events_are_loaded", "a_history_is_a_sequence"),
        "save_remote_binding(binding) implemented": ("bindings_are_saved",),
    },
    "Method contracts": {
        "save_event is idempotent": ("an_event_saved_again_is_stored_once", "different_events_are_all_stored"),
        "load_history returns events ordered by timestamp": (
            "history_is_ordered_by_time",
            "events_of_one_moment_keep_their_order",
        ),
        "load_history returns an empty list for an unknown trace": ("an_unknown_trace_has_no_history",),
        "save_remote_binding supports upsert semantics": (
            "bindings_are_saved",
            "bindings_are_keyed_by_trace_context_and_task",
        ),
    },
    "Optional methods": {
        "save_planner_state and load_planner_state implemented": ("a_pause_is_loaded",),
        "load_planner_state returns None for missing tokens": ("an_unknown_token_is_none",),
        "load_planner_state consumes the token": ("a_pause_is_taken_once", "one_of_many_takes_a_pause"),
        "save_memory_state and load_memory_state implemented": ("memory_is_loaded", "memory_is_replaced"),
        "load_memory_state returns None for missing keys": ("an_unknown_key_is_none",),
    },
    "Task and session methods": {
        "save_task and list_tasks implemented": ("tasks_are_loaded", "a_task_saved_again_is_one_task"),
        "save_update implemented": ("updates_are_loaded",),
        "list_updates(session_id, task_id, since_id, limit) implemented": (
            "a_cursor_is_exclusive",
            "the_filter_is_applied_before_the_limit",
        ),
        "save_steering implemented": ("steering_is_loaded",),
        "list_steering(session_id, task_id, since_id, limit) implemented": ("steering_has_cursors",),
    },
    "Trajectories and planner events": {
        "save_trajectory and get_trajectory implemented": (
            "trajectories_are_loaded",
            "a_trajectory_of_another_session_is_none",
        ),
        "list_traces implemented": ("traces_are_listed_newest_first",),
        "save_planner_event and list_planner_events implemented": (
            "planner_events_are_loaded",
            "planner_events_are_in_the_order_of_saving",
        ),
    },
    "Artifact store": {
        "artifact_store returns an ArtifactStore or None": ("the_artifact_store_is_found",),
        "Session-scoped access patterns supported": (
            "artifacts_are_listed_by_scope",
            "equal_bytes_of_two_sessions_are_two_artifacts",
        ),
        "Retention config honored (TTL, max sizes)": (),
    },
    "Production readiness": {
        "Steering payloads sanitized before storage": ("steering_is_cut_to_size",),
        "Connection pooling configured": (),
        "Timeouts set on all database operations": (),
        "Proper error handling (log, don't crash)": (),
        "TTL and expiration on pause records": (),
        "Cleanup job for expired data": (),
        "Indexes on frequently queried columns": (),
        "Integration test with PenguiFlow passing": (),
    },
    "Distributed deployment": {
        "Idempotency verified for all write methods": (
            "an_event_saved_again_is_stored_once",
            "a_pause_saved_again_is_replaced",
            "a_task_saved_again_is_one_task",
            "an_update_saved_again_is_stored_once",
            "a_steering_event_saved_again_is_stored_once",
            "a_trajectory_saved_again_is_the_newest",
            "a_planner_event_saved_again_is_stored_once",
        ),
        "Cursor semantics work correctly for list methods": (
            "a_cursor_is_exclusive",
            "an_unknown_cursor_is_ignored",
            "cursors_return_every_update",
            "steering_has_cursors",
            "steering_pages_return_every_event",
        ),
        "Context versioning preserved in TaskContextSnapshot": ("tasks_are_loaded",),
        "Session hydration tested": ("tasks_are_listed_in_the_order_of_first_saves", "sessions_survive"),
    },
    "Documentation": {
        "Factory function documented for the admin CLI": (),
        "Environment variables documented": (),
        "Schema migrations documented": (),
    },
}


def checklist(report: ConformanceReport) -> str:
    """The checklist as Markdown: items are done, broken (by which laws), not implemented, or need a manual check."""
    verdicts = {finding.law.name: finding.verdict for finding in report.findings}
    lines = []
    for title, items in ITEMS.items():
        lines += [f"### {title}", ""]
        for item, laws in items.items():
            broken = [law for law in laws if verdicts.get(law) == "failed"]
            if broken:
                lines.append(f"- [ ] {item} (broken: {', '.join(f'`{law}`' for law in broken)})")
            elif any(verdicts.get(law) == "passed" for law in laws):
                lines.append(f"- [x] {item}")
            else:
                lines.append(f"- [ ] {item} ({'not implemented' if laws else 'check manually'})")
        lines.append("")
    return "\n".join(lines)
