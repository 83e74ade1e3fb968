"""The specification's checklist for an implementation, filled in by a report."""

from __future__ import annotations

from typing import Final

from keelbolt.conformance.report import ConformanceReport

# Each item with the laws that show it; an item without laws is for people to look at.
ITEMS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "Required methods": {
        "save_event(event) implemented": ("events_come_back",),
        "load_history(trace_id) implemented": ("events_come_back", "a_history_is_a_sequence"),
        "save_remote_binding(binding) implemented": ("bindings_are_taken",),
    },
    "Method contracts": {
        "save_event is idempotent": ("an_event_saved_again_is_the_same", "different_events_are_all_kept"),
        "load_history returns events ordered by timestamp": (
            "history_is_ordered_by_time",
            "events_of_one_moment_keep_their_order",
        ),
        "load_history returns an empty list for an unknown trace": ("an_unknown_trace_has_no_history",),
        "save_remote_binding supports upsert semantics": (
            "bindings_are_taken",
            "bindings_are_known_by_trace_context_and_task",
        ),
    },
    "Optional methods": {
        "save_planner_state and load_planner_state implemented": ("a_pause_comes_back",),
        "load_planner_state returns None for missing tokens": ("an_unknown_token_is_none",),
        "load_planner_state consumes the token": ("a_pause_is_taken_once", "one_of_many_takes_a_pause"),
        "save_memory_state and load_memory_state implemented": ("memory_comes_back", "memory_is_replaced"),
        "load_memory_state returns None for missing keys": ("an_unknown_key_is_none",),
    },
    "Task and session methods": {
        "save_task and list_tasks implemented": ("tasks_come_back", "a_task_saved_again_is_one_task"),
        "save_update implemented": ("updates_come_back",),
        "list_updates(session_id, task_id, since_id, limit) implemented": (
            "a_cursor_is_exclusive",
            "the_filter_goes_before_the_limit",
        ),
        "save_steering implemented": ("steering_comes_back",),
        "list_steering(session_id, task_id, since_id, limit) implemented": ("steering_has_cursors",),
    },
    "Trajectories and planner events": {
        "save_trajectory and get_trajectory implemented": (
            "trajectories_come_back",
            "a_trajectory_of_another_session_is_none",
        ),
        "list_traces implemented": ("traces_are_listed_newest_first",),
        "save_planner_event and list_planner_events implemented": (
            "planner_events_come_back",
            "planner_events_come_as_they_were_saved",
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
            "an_event_saved_again_is_the_same",
            "a_pause_saved_again_is_the_last",
            "a_task_saved_again_is_one_task",
            "an_update_saved_again_is_the_same",
            "a_steering_event_saved_again_is_the_same",
            "a_trajectory_saved_again_is_the_newest",
            "a_planner_event_saved_again_is_the_same",
        ),
        "Cursor semantics work correctly for list methods": (
            "a_cursor_is_exclusive",
            "an_unknown_cursor_is_no_cursor",
            "cursors_lead_through_everything",
            "steering_has_cursors",
            "steering_pages_lead_through_everything",
        ),
        "Context versioning preserved in TaskContextSnapshot": ("tasks_come_back",),
        "Session hydration tested": ("tasks_are_listed_as_they_came", "sessions_survive"),
    },
    "Documentation": {
        "Factory function documented for the admin CLI": (),
        "Environment variables documented": (),
        "Schema migrations documented": (),
    },
}


def checklist(report: ConformanceReport) -> str:
    """The checklist as Markdown: done, broken by these laws, not there, or to be looked at by people."""
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
                lines.append(f"- [ ] {item} ({'not there' if laws else 'look yourself'})")
        lines.append("")
    return "\n".join(lines)
