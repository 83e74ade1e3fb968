"""The routes of the operations API: the table from which it is served, described and tested."""

from __future__ import annotations

from keelbolt.operations.kept_routes import KEPT_ROUTES
from keelbolt.operations.route import PAGE, PREFIX, OpsRoute

__all__ = ["PREFIX", "ROUTES", "OpsRoute"]

_WHOSE = (
    ("tenant", "act in this tenant (operators)"),
    ("owner", "act for this owner (operators)"),
    ("askedTenant", "what was sent under this tenant, for which nobody vouches"),
)

_ALL = ("all", "true: of every owner that the caller may see (operators)")

ROUTES: tuple[OpsRoute, ...] = (
    OpsRoute("openapi", "GET", "/openapi.json", "This API, described by OpenAPI 3.1"),
    OpsRoute("whoami", "GET", "/whoami", "Who the caller is here, and whether it is an operator"),
    OpsRoute(
        "list_tasks",
        "GET",
        "/tasks",
        "Tasks, newest status first, with totals by state",
        (
            ("state", "for example working"),
            ("context", "a context id"),
            ("skill", "the skill that was asked for (metadata.skillId)"),
            ("q", "words in what was asked or answered, or parts of ids of at least six characters; all must occur"),
            ("since", "a timestamp"),
            ("until", "a timestamp"),
            _ALL,
            *PAGE,
            *_WHOSE,
        ),
    ),
    OpsRoute(
        "send_task",
        "POST",
        "/tasks",
        "Send a text message as an owner, which makes a task or continues one",
        _WHOSE,
        (("text", "what to say"), ("task", "the task to continue"), ("context", "the context of a new task")),
        operator=True,
    ),
    OpsRoute("watch_tasks", "GET", "/events", "Each task whose status changes, as it changes", _WHOSE, stream=True),
    OpsRoute(
        "show_task",
        "GET",
        "/tasks/{task_id}",
        "A task with its turns, attempts, steps and work item",
        (
            ("brief", "true: without history and artifacts"),
            ("report", "true: also what the whole log tells of attempts, steps, steering and errors"),
            *_WHOSE,
        ),
    ),
    OpsRoute(
        "read_log",
        "GET",
        "/tasks/{task_id}/log",
        "The entries of a task's log",
        (("after", "the last seq known"), ("limit", "1 to 500 (default 100)"), *_WHOSE),
    ),
    OpsRoute(
        "follow_log",
        "GET",
        "/tasks/{task_id}/events",
        "The log, and then each new entry; Last-Event-ID continues",
        (("after", "the last seq known; without it, the task as it is now comes first"), *_WHOSE),
        stream=True,
    ),
    OpsRoute("read_inbox", "GET", "/tasks/{task_id}/inbox", "What others sent to the task while it ran", _WHOSE),
    OpsRoute(
        "cancel_task", "POST", "/tasks/{task_id}/cancel", "Cancel a task", _WHOSE, (("reason", "kept in the log"),)
    ),
    OpsRoute(
        "steer_task",
        "POST",
        "/tasks/{task_id}/steer",
        "Inject, redirect, pause, resume or prioritise a running task",
        _WHOSE,
        (("kind", "inject, redirect, pause, resume or prioritise"), ("reason", "kept in the log"), ("payload", "JSON")),
    ),
    OpsRoute("requeue_task", "POST", "/tasks/{task_id}/requeue", "Try a failed task anew, as a new task", _WHOSE),
    OpsRoute(
        "fork_task",
        "POST",
        "/tasks/{task_id}/fork",
        "A new task that goes on from a point of this one's log",
        _WHOSE,
        (("seq", "the last entry that goes along"),),
    ),
    OpsRoute(
        "read_file",
        "GET",
        "/tasks/{task_id}/files/{digest}",
        "A file of a task, which an artifact refers to; Range and If-None-Match are understood",
        _WHOSE,
        file=True,
    ),
    OpsRoute("erase_task", "DELETE", "/tasks/{task_id}", "Erase a task with everything that belongs to it", _WHOSE),
    OpsRoute(
        "erase_context",
        "DELETE",
        "/tasks",
        "Erase every task of a context, or of the owner, and what the worker kept about them",
        (("context", "a context id"), ("everything", "true: every task and context of the owner"), *_WHOSE),
    ),
    OpsRoute(
        "erase_subject",
        "POST",
        "/erase",
        "Erase everything of one subject, in all parts of Keelbolt, for good",
        body=(
            ("kind", "task, context, session, trace, memory, thread, user or tenant"),
            ("id", "which"),
            ("tenant", "whose subject it is"),
            ("owner", "of a task, context or thread: whose it is"),
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
        "Remove what is older or more than is to be kept, of all owners, and what has expired",
        body=(("retain", "a list of policies, as completed=30d"), ("dryRun", "true: only count")),
        operator=True,
        stream=True,
    ),
    OpsRoute("list_dead", "GET", "/dead", "Tasks that were given up after their last attempt", (_ALL, *PAGE, *_WHOSE)),
    OpsRoute("requeue_dead", "POST", "/dead/requeue", "Try a page of dead letters anew", (_ALL, *PAGE, *_WHOSE)),
    OpsRoute("drop_dead", "DELETE", "/dead/{task_id}", "Forget a dead letter; its task stays failed", _WHOSE),
    OpsRoute("drop_all_dead", "DELETE", "/dead", "Forget a page of dead letters", (_ALL, *PAGE, *_WHOSE)),
    OpsRoute(
        "list_webhooks",
        "GET",
        "/webhooks",
        "The webhooks of all tasks, and how each stands",
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
        "Deliver again to a page of the webhooks that were given up",
        (_ALL, *PAGE, *_WHOSE),
    ),
    OpsRoute("list_push", "GET", "/tasks/{task_id}/webhooks", "The webhooks of a task, and how each stands", _WHOSE),
    OpsRoute(
        "replay_push",
        "POST",
        "/tasks/{task_id}/webhooks/{config_id}/replay",
        "Deliver to a webhook again, also to one that was given up",
        _WHOSE,
        (("after", "the last seq that is not repeated; without it, go on where the webhook stands"),),
    ),
    OpsRoute(
        "renew_secret",
        "POST",
        "/tasks/{task_id}/webhooks/{config_id}/secret",
        "Give a webhook a new signing secret, and show it: it is shown once",
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
        "How much is stored; everything is counted, which takes a while on a large store",
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
        "Work items: waiting, held (by whom) or dead",
        (("queue", "tasks (default) or webhooks"), ("state", "waiting, held or dead"), *PAGE, *_WHOSE),
    ),
    OpsRoute(
        "partitions",
        "GET",
        "/partitions",
        "Whose tasks an operator may see: those of its tenant, or all",
        (("after", "from this one on"),),
    ),
    *KEPT_ROUTES,
)
