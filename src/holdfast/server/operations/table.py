"""The routes of the operations API: the one table from which it is served, described and tested."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

PREFIX = "/holdfast/v1"

Method = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True)
class OpsRoute:
    """``name`` is the handler. An ``operator`` route shows what belongs to nobody in particular."""

    name: str
    method: Method
    path: str
    summary: str
    query: tuple[tuple[str, str], ...] = ()  # name, what it is
    body: tuple[tuple[str, str], ...] = ()
    operator: bool = False
    stream: bool = False
    file: bool = False  # the answer is no JSON

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", PREFIX + self.path))


_WHOSE = (
    ("tenant", "act in this tenant (operators)"),
    ("owner", "act for this owner (operators)"),
    ("askedTenant", "what was sent under this tenant, for which nobody vouches"),
)
_PAGE = (("pageSize", "1 to 100 (default 50)"), ("pageToken", "from the page before"))
_STATE = (("tenant", "the tenant of the state store (default: default)"),)
_TURNS = (("tenant", "the tenant of the turns; without it, all"),)
_PART = (("after", "the last seq known"), ("limit", "1 to 500 (default 100)"))

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
            ("text", "words in how it began, in its last status, or in an id"),
            ("since", "a timestamp"),
            ("until", "a timestamp"),
            *_PAGE,
            *_WHOSE,
        ),
    ),
    OpsRoute("watch_tasks", "GET", "/events", "Each task whose status changes, as it changes", _WHOSE, stream=True),
    OpsRoute(
        "show_task",
        "GET",
        "/tasks/{task_id}",
        "A task with its turns, attempts, steps and work item",
        (("brief", "true: without history and artifacts"), *_WHOSE),
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
        (("after", "the last seq known"), *_WHOSE),
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
        "Erase every task of a context, and what the worker kept about it",
        (("context", "a context id"), *_WHOSE),
    ),
    OpsRoute("list_dead", "GET", "/dead", "Tasks that were given up after their last attempt", (*_PAGE, *_WHOSE)),
    OpsRoute("drop_dead", "DELETE", "/dead/{task_id}", "Forget a dead letter; its task stays failed", _WHOSE),
    OpsRoute(
        "list_webhooks",
        "GET",
        "/webhooks",
        "The webhooks of all tasks, and how each stands",
        (("state", "active or failed; without it, all"), ("limit", "1 to 500 (default 100)"), *_WHOSE),
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
    OpsRoute("system", "GET", "/system", "Engine, health, queues, workers and storage statistics", operator=True),
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
        (("queue", "tasks (default) or webhooks"), ("state", "waiting, held or dead"), *_PAGE, *_WHOSE),
    ),
    OpsRoute(
        "partitions", "GET", "/partitions", "Whose tasks are kept here", (("after", "from this one on"),), operator=True
    ),
    OpsRoute(
        "list_gates",
        "GET",
        "/gates",
        "Gates at which turns wait, or waited",
        (("state", "open (default) or settled"), ("limit", "1 to 500 (default 100)"), *_TURNS),
        operator=True,
    ),
    OpsRoute("show_gate", "GET", "/gates/{gate_token}", "A gate: what it asks, and how it was settled", operator=True),
    OpsRoute(
        "settle_gate",
        "POST",
        "/gates/{gate_token}",
        "Settle a gate, and let its task go on; the first who settles it wins",
        body=(
            ("answer", "resolve (default), reject or abort"),
            ("value", "the answer, as JSON, with which it is resolved"),
            ("reason", "why it is rejected or aborted"),
        ),
        operator=True,
    ),
    OpsRoute(
        "state_tenants",
        "GET",
        "/state/tenants",
        "The tenants whose state agents keep in this storage",
        (("after", "from this one on"),),
        operator=True,
    ),
    OpsRoute(
        "state_sessions",
        "GET",
        "/state/sessions",
        "Sessions of a state store, the last noted first",
        (*_PAGE, *_STATE),
        operator=True,
    ),
    OpsRoute(
        "state_session",
        "GET",
        "/state/sessions/{session_id}",
        "A session with its tasks, updates, steering, traces, bindings, artifacts and context",
        _STATE,
        operator=True,
    ),
    OpsRoute(
        "state_task",
        "GET",
        "/state/sessions/{session_id}/tasks/{state_task_id}",
        "A task of a session, with the context that it was started with",
        _STATE,
        operator=True,
    ),
    OpsRoute(
        "state_updates",
        "GET",
        "/state/sessions/{session_id}/updates",
        "The updates of a session; without after, the last",
        (*_PART, *_STATE),
        operator=True,
    ),
    OpsRoute(
        "state_steering",
        "GET",
        "/state/sessions/{session_id}/steering",
        "The steering events of a session; without after, the last",
        (*_PART, *_STATE),
        operator=True,
    ),
    OpsRoute(
        "state_traces",
        "GET",
        "/state/traces",
        "Traces of a state store, the last noted first",
        (*_PAGE, *_STATE),
        operator=True,
    ),
    OpsRoute(
        "state_trace",
        "GET",
        "/state/traces/{trace_id}",
        "A trace with its events, its planner's, its trajectories and bindings",
        (("session", "the trajectory of this session alone"), *_STATE),
        operator=True,
    ),
    OpsRoute(
        "state_events",
        "GET",
        "/state/traces/{trace_id}/events",
        "The events of a flow, as they came",
        (*_PART, *_STATE),
        operator=True,
    ),
    OpsRoute(
        "state_planner_events",
        "GET",
        "/state/traces/{trace_id}/planner-events",
        "The events of a planner, as they came",
        (*_PART, *_STATE),
        operator=True,
    ),
    OpsRoute(
        "state_memories",
        "GET",
        "/state/memory",
        "The keys of memory states, the last saved first",
        (*_PAGE, *_STATE),
        operator=True,
    ),
    OpsRoute("state_memory", "GET", "/state/memory/{memory_key}", "A memory state", _STATE, operator=True),
    OpsRoute(
        "state_artifacts",
        "GET",
        "/state/artifacts",
        "Artifacts of a session, the last used first; or of all, what stays longest first",
        (("session", "of this session alone"), *_PAGE, *_STATE),
        operator=True,
    ),
    OpsRoute(
        "state_artifact",
        "GET",
        "/state/artifacts/{artifact_id}",
        "An artifact, and how it begins where that is text",
        _STATE,
        operator=True,
    ),
    OpsRoute(
        "state_artifact_content",
        "GET",
        "/state/artifacts/{artifact_id}/content",
        "The bytes of an artifact; Range and If-None-Match are understood",
        _STATE,
        operator=True,
        file=True,
    ),
)
