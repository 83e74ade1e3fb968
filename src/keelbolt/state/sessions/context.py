"""The context of a session: the data for the model and the tools, with a version and a hash.

All functions are pure: a change returns a new context and leaves the old one unchanged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from keelbolt.state.types.planner import BackgroundTaskResult, read_results

RESULT_KEY = "background_result"
RESULTS_KEY = "background_results"


@dataclass(slots=True)
class SessionContext:
    """The context of a session.

    ``version`` counts the updates, ``context_hash`` is the hash of ``llm_context``. Results of background tasks are
    stored separately: ``background_results`` holds appended results by task, and ``background_result`` the last result
    merged by REPLACE. Merging changes neither version nor hash.
    """

    llm_context: dict[str, Any] = field(default_factory=dict)
    tool_context: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    background_results: dict[str, BackgroundTaskResult] = field(default_factory=dict)
    background_result: BackgroundTaskResult | None = None
    version: int = 0
    context_hash: str | None = None


def hash_context(llm_context: Mapping[str, Any]) -> str | None:
    """Return the SHA-256 of the context as JSON with sorted keys; None if it is not JSON."""
    try:
        return hashlib.sha256(json.dumps(llm_context, ensure_ascii=False, sort_keys=True).encode()).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return None


def updated(
    context: SessionContext,
    *,
    llm_context: Mapping[str, Any] | None = None,
    tool_context: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    artifacts: Iterable[Mapping[str, Any]] | None = None,
) -> SessionContext:
    """Return the context with these parts replaced, the next version and a new hash.

    Results of background tasks in ``llm_context`` (where older programs kept them) are moved out of it, so that they do
    not affect the hash.
    """
    new = replace(context, version=context.version + 1)
    if llm_context is not None:
        new.llm_context, found = split_results(llm_context)
        new.background_results = {**context.background_results, **found}
    if tool_context is not None:
        new.tool_context = dict(tool_context)
    if memory is not None:
        new.memory = dict(memory)
    if artifacts is not None:
        new.artifacts = [dict(artifact) for artifact in artifacts]
    new.context_hash = hash_context(new.llm_context)
    return new


def split_results(llm_context: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, BackgroundTaskResult]]:
    """Return the context without the results of background tasks, and the results."""
    results: dict[str, BackgroundTaskResult] = {}
    for key in (RESULT_KEY, RESULTS_KEY):
        results.update({result.task_id: result for result in read_results(llm_context.get(key))})
    return {key: value for key, value in llm_context.items() if key not in (RESULT_KEY, RESULTS_KEY)}, results


def consumed(context: SessionContext, task_ids: Iterable[str]) -> tuple[SessionContext, int]:
    """Return the context without the results of these tasks, and the number of removed results."""
    wanted = set(task_ids)
    kept = {task: result for task, result in context.background_results.items() if task not in wanted}
    last = context.background_result
    gone = len(context.background_results) - len(kept)
    if last is not None and last.task_id in wanted:
        last, gone = None, gone + 1
    return replace(context, background_results=kept, background_result=last), gone


def visible_results(context: SessionContext) -> dict[str, Any]:
    """Return the results for a snapshot, under the keys that the model sees."""
    shown: dict[str, Any] = {}
    if context.background_results:
        shown[RESULTS_KEY] = [result.to_payload() for result in context.background_results.values()]
    if context.background_result is not None:
        shown[RESULT_KEY] = context.background_result.to_payload()
    return shown
