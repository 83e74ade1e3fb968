"""The routes of the operations API: the table from which it is served, described and tested."""

from __future__ import annotations

from keelbolt.operations.kept_routes import KEPT_ROUTES
from keelbolt.operations.route import PAGE, PREFIX, OpsRoute

__all__ = ["PREFIX", "ROUTES", "OpsRoute"]

_WHOSE = (
    ("tenant", "act in this tenant (operators)"),
    ("owner", "act for this owner (operators)"),
    ("askedTenant", "tasks sent under this tenant, which was named by the caller and not authenticated"),
)

_ALL = ("all", "true: for every owner that the caller may see (operators)")

ROUTES: tuple[OpsRoute, ...] = (
    OpsRoute("openapi", "GET", "/openapi.json", "This API, described by OpenAPI 3.1"),
    OpsRoute("whoami", "GET", "/whoami", "The caller's identity, and whether it is an operator"),
    OpsRoute(
        "list_tasks",
        "GET",
        "/tasks",
        "Tasks, newest status first or as sorted, with totals by state",
        (
            ("state", "for example working"),
            ("context", "a context id"),
            ("skill", "the requested skill (metadata.skillId)"),
            ("q", "words of the request or the response, or parts of ids of at least six characters; all must occur"),
            ("since", "a timestamp"),
            ("until", "a timestamp"),
            ("sort", "-updated (default): newest status first; updated: oldest status first"),
            _ALL,
            *PAGE,
            *_WHOSE,
        ),
    ),
    OpsRoute(
        "send_task",
        "POST",
        "/tasks",
        "Send a text message as an owner; it creates a task or continues one",
        _WHOSE,
        (
            ("text", "the text of the message"),
            ("task", "the task to continue"),
            ("context", "the context of a new task"),
        ),
        operator=True,
    ),
    OpsRoute("watch_tasks", "GET", "/events", "Each task whenever its status changes", _WHOSE, stream=True),
    OpsRoute(
        "show_task",
        "GET",
        "/tasks/{task_id}",
        "A task with its turns, attempts, steps and work item",
        (
            ("brief", "true: without history and artifacts"),
            ("report", "true: also the attempts, steps, steering and errors of the whole log"),
            *_WHOSE,
        ),
    ),
    OpsRoute(
        "read_log",
        "GET",
        "/tasks/{task_id}/log",
        "The entries of a task's log",
        (("after", "the last known seq"), ("limit", "1 to 500 (default 100)"), *_WHOSE),
    ),
    OpsRoute(
        "follow_log",
        "GET",
        "/tasks/{task_id}/events",
        "The log, and then each new entry; Last-Event-ID continues",
        (("after", "the last known seq; without it, the current task comes first"), *_WHOSE),
        stream=True,
    ),
    OpsRoute(
        "read_inbox",
        "GET",
        "/tasks/{task_id}/inbox",
        "The cancels, messages and steering sent to the task while it ran",
        _WHOSE,
    ),
    OpsRoute(
        "cancel_task", "POST", "/tasks/{task_id}/cancel", "Cancel a task", _WHOSE, (("reason", "recorded in the log"),)
    ),
    OpsRoute(
        "steer_task",
        "POST",
        "/tasks/{task_id}/steer",
        "Inject, redirect, pause, resume or prioritise a running task",
        _WHOSE,
        (
            ("kind", "inject, redirect, pause, resume or prioritise"),
            ("reason", "recorded in the log"),
            ("payload", "JSON"),
        ),
    ),
    OpsRoute("requeue_task", "POST", "/tasks/{task_id}/requeue", "Run a failed task again as a new task", _WHOSE),
    OpsRoute(
        "fork_task",
        "POST",
        "/tasks/{task_id}/fork",
        "Create a task that continues from an entry of this task's log",
        _WHOSE,
        (("seq", "the last entry that the new task keeps"),),
    ),
    OpsRoute(
        "read_file",
        "GET",
        "/tasks/{task_id}/files/{digest}",
        "A file of a task that an artifact refers to; supports Range and If-None-Match",
        _WHOSE,
        file=True,
    ),
    OpsRoute("erase_task", "DELETE", "/tasks/{task_id}", "Erase a task with everything that belongs to it", _WHOSE),
    OpsRoute(
        "erase_context",
        "DELETE",
        "/tasks",
        "Erase every task of a context, or of the owner, and the context data of its worker",
        (("context", "a context id"), ("everything", "true: every task and context of the owner"), *_WHOSE),
    ),
    OpsRoute(
        "erase_subject",
        "POST",
        "/erase",
        "Permanently erase everything of one subject, in all parts of Keelbolt",
        body=(
            ("kind", "task, context, session, trace, memory, thread, user or tenant"),
            ("id", "which"),
            ("tenant", "the tenant of the subject"),
            ("owner", "the owner of a task, context or thread"),
            ("dryRun", "true: only count"),
            ("ifIdle", "true: refuse a subject that a worker or a process uses"),
        ),
        operator=True,
        stream=True,
    ),
    OpsRoute(
        "sweep",
        "POST",
        "/sweep",
        "Remove expired data and everything past the given policies, of all owners",
        body=(("retain", "a list of policies such as completed=30d"), ("dryRun", "true: only count")),
        operator=True,
        stream=True,
    ),
    OpsRoute("list_dead", "GET", "/dead", "Tasks that were given up after their last attempt", (_ALL, *PAGE, *_WHOSE)),
    OpsRoute("requeue_dead", "POST", "/dead/requeue", "Run a page of dead letters again", (_ALL, *PAGE, *_WHOSE)),
    OpsRoute("drop_dead", "DELETE", "/dead/{task_id}", "Delete a dead letter; its task stays failed", _WHOSE),
    OpsRoute("drop_all_dead", "DELETE", "/dead", "Delete a page of dead letters", (_ALL, *PAGE, *_WHOSE)),
    OpsRoute(
        "list_webhooks",
        "GET",
        "/webhooks",
        "The webhooks of all tasks with their delivery state",
        (
            ("state", "active, failing (a delivery failed, or given up) or failed (given up); without it, all"),
            _ALL,
            *PAGE,
            *_WHOSE,
        ),
    ),
    OpsRoute(
        "replay_failed",
        "POST",
        "/webhooks/replay",
        "Resume delivery to a page of the webhooks that were given up",
        (_ALL, *PAGE, *_WHOSE),
    ),
    OpsRoute(
        "list_push", "GET", "/tasks/{task_id}/webhooks", "The webhooks of a task with their delivery state", _WHOSE
    ),
    OpsRoute(
        "replay_push",
        "POST",
        "/tasks/{task_id}/webhooks/{config_id}/replay",
        "Deliver to a webhook again, also to one that was given up",
        _WHOSE,
        (("after", "the last seq that is not repeated; without it, continue at the webhook's cursor"),),
    ),
    OpsRoute(
        "renew_secret",
        "POST",
        "/tasks/{task_id}/webhooks/{config_id}/secret",
        "Create a new signing secret for a webhook; it is shown only once",
        _WHOSE,
    ),
    OpsRoute("system", "GET", "/system", "Engine, health, queues and processes", operator=True),
    OpsRoute(
        "system_history",
        "GET",
        "/system/history",
        "Throughput, durations and queue of the last hours, in buckets of five minutes",
        (("hours", "1 to 48 (default 6)"),),
        operator=True,
    ),
    OpsRoute(
        "system_storage",
        "GET",
        "/system/storage",
        "The amount of stored data; counting takes a while on a large store",
        operator=True,
    ),
    OpsRoute(
        "watch_system",
        "GET",
        "/system/events",
        "Queues, dead letters and workers, whenever their numbers change",
        operator=True,
        stream=True,
    ),
    OpsRoute(
        "list_work",
        "GET",
        "/work",
        "Work items: waiting, held (with the holder) or dead",
        (("queue", "tasks (default) or webhooks"), ("state", "waiting, held or dead"), *PAGE, *_WHOSE),
    ),
    OpsRoute(
        "partitions",
        "GET",
        "/partitions",
        "The owners whose tasks an operator may see: those of its tenant, or all",
        (("after", "start after this owner"),),
    ),
    *KEPT_ROUTES,
)
