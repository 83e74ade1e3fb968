"""The generation extension: a gapless number of a task's state, as in A2A 1.1, within the metadata of 1.0.

A generation counts the events of a task: 1 when it is created, plus 1 for each status and artifact update. It equals
the number of such entries in the task's log, so it needs no storage and is the same in every process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from keelbolt.errors import InvalidParamsError, LogTrimmed
from keelbolt.kernel import Scope
from keelbolt.protocol.extensions import GENERATION
from keelbolt.protocol.requests import GetTaskRequest, SendMessageRequest
from keelbolt.server.caller import Caller
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.families import EVENTS
from keelbolt.tasks.notes import WIRE_KINDS
from keelbolt.tasks.stored_tasks import StoredTask

if TYPE_CHECKING:
    from keelbolt.server.service import StreamItem

HEADER = b"current-generation"
MATCH = "ifGenerationMatch"


def in_use(caller: Caller) -> bool:
    """Return whether the extension is active for this caller."""
    return GENERATION in caller.extensions


def expected(request: SendMessageRequest, caller: Caller) -> int | None:
    """Return the generation that the task must have: ``metadata[GENERATION].ifGenerationMatch``."""
    given = (request.metadata or {}).get(GENERATION)
    if not in_use(caller) or not isinstance(given, Mapping) or given.get(MATCH) is None:
        return None
    return _number(given[MATCH], MATCH)


def known(request: GetTaskRequest, caller: Caller) -> int | None:
    """Return the generation that a caller of GetTask has: the parameter currentGeneration, or the header."""
    if not in_use(caller):
        return None
    if request.current_generation is not None:
        return request.current_generation
    given = next((value for name, value in caller.headers if name == HEADER), None)
    return None if given is None else _number(given.decode("latin-1"), "Current-Generation")


def _number(value: Any, name: str) -> int:
    if isinstance(value, float) and value.is_integer():  # protobuf's Struct has no integers
        value = int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if type(value) is not int or value < 0:
        raise InvalidParamsError(f"{name} must be a number: the generation of a task")
    return value


async def newer(engine: TaskEngine, task: StoredTask, generation: int, seconds: float) -> StoredTask:
    """Return the task once it is past this generation, is terminal, or ``seconds`` have passed."""
    scope, task_id = task.scope, task.record.task_id
    found = task.view.generation
    if found > generation or task.view.state.terminal:
        return task
    follow = engine.events.follow(scope, task_id, after=task.version)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), contextlib.aclosing(follow) as events:
            async for event in events:
                found += getattr(event, "kind", "status") in WIRE_KINDS
                if found > generation:
                    break
    return await engine.store.load(scope, task_id)


async def numbered(
    engine: TaskEngine, items: AsyncGenerator[StreamItem, None], caller: Caller
) -> AsyncGenerator[StreamItem, None]:
    """Yield the items of a stream, each with its generation in its metadata."""
    generation: int | None = None
    async with contextlib.aclosing(items):
        async for item in items:
            if item.kind == "opened":
                yield item
                continue
            body = from_json(item.json)
            if generation is None or item.kind == "task":
                task_id = item.task_id or body["id"]
                generation = await _at(engine, engine.tasks.scope(caller.principal), task_id, item.seq or 0)
            else:
                generation += 1
            body["metadata"] = {**body.get("metadata", {}), GENERATION: {"generation": generation}}
            yield item.with_json(to_json(body))


async def _at(engine: TaskEngine, scope: Scope, task_id: str, seq: int) -> int:
    """Return the generation of the task at this entry of its log."""
    task = await engine.store.load(scope, task_id)
    generation, after = task.view.generation, seq
    while after < task.version:
        try:
            page = await scope.read_log(EVENTS, task_id, after=after, before=task.version + 1)
        except LogTrimmed:  # the stream has a gap here and begins with a newer task
            break
        if not page.entries:
            break
        generation -= sum(entry.kind in WIRE_KINDS for entry in page.entries)
        after = page.entries[-1].seq
    return generation
