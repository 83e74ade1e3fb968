"""The operations API for tasks, their files, and dead letters: tasks given up after their last attempt."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from pydantic_core import from_json, to_json

from keelbolt.auth import Principal
from keelbolt.errors import (
    InvalidParamsError,
    LogTrimmed,
    MethodNotFoundError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from keelbolt.kernel import BlobReader, Entry, Query, Scope, new_id
from keelbolt.operations.call import OpsCall, page_of
from keelbolt.operations.task_lists import WATCH_SECONDS, Summaries, TaskFilter, TaskWatcher
from keelbolt.protocol.types import Message, Part, Role, TaskState, timestamp
from keelbolt.tasks.dead import DeadLetter, dead_letters, drop, owner_of
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.events import TaskSnapshot
from keelbolt.tasks.families import EVENTS, INBOX, QUEUE, TASKS
from keelbolt.tasks.files import TaskFile, open_file
from keelbolt.tasks.listing import ListTasksQuery, record_json
from keelbolt.tasks.record import TaskRecord, check_context_id
from keelbolt.tasks.report import Attempt, Steered, StepReport, WorkerFailure, report
from keelbolt.tasks.runner import EXHAUSTED, GIVEN_UP, UNCLEANED
from keelbolt.tasks.stored_tasks import StoredTask
from keelbolt.tasks.sweep import erase_context, erase_owner, erase_task

LAST_ENTRIES = 16  # number of log entries that are searched for the error that ended a turn
SORTS = ("-updated", "updated")  # orders of lists that the indexes have; the first is the default

Send = Callable[[Message, Principal], Awaitable[bytes]]
"""Sends a message as this principal, and returns the task as it is when the message is accepted."""

Frames = AsyncGenerator[tuple[bytes, int | None], None]


class TaskOperations:
    """The handlers of the routes for tasks. They return JSON as bytes."""

    def __init__(self, engine: TaskEngine, send: Send) -> None:
        self._engine = engine
        self._send = send
        self._tasks = engine.tasks
        self._store = engine.store
        self._kernel = engine.kernel
        self._watching = TaskWatcher(engine.store)
        self._summaries = Summaries(engine.store)

    # -------------------------------------------------------------------------------------------------------- read

    async def list_tasks(self, call: OpsCall) -> bytes:
        state = call.query.get("state")
        query = ListTasksQuery(
            context_id=call.query.get("context"),
            status=_state(state) if state else None,
            status_timestamp_after=call.query.get("since"),
        )
        sort = call.query.get("sort") or SORTS[0]
        if sort not in SORTS:
            raise InvalidParamsError(f"sort is {' or '.join(SORTS)}, not {sort!r}")
        wanted = TaskFilter(
            call.query.get("q", ""),
            call.query.get("skill", ""),
            call.query.get("until"),
            oldest_first=sort == "updated",
        )
        totals: dict[str, Any] = {}

        async def read(scope: Scope, limit: int, cursor: str | None) -> tuple[list[tuple[Scope, TaskRecord]], str]:
            asked = query.model_copy(update={"page_size": limit, "page_token": cursor})
            page = await self._summaries.search(scope, asked, wanted)
            if not call.everywhere:
                totals.update(total=page.total.value, exact=page.total.exact, states=await self._counts(scope))
            return [(scope, record) for record in page.records], page.next_page_token

        found, token = await page_of(self._kernel, call, read)
        tasks = await asyncio.gather(*(self._summaries.json(scope, record) for scope, record in found))
        return b'{"tasks":[%b],%b' % (b",".join(tasks), to_json({"nextPageToken": token, **totals})[1:])

    async def _counts(self, scope: Scope) -> dict[str, int]:
        queries = [Query(TASKS, {"state": state.name}, order="updated") for state in TaskState]
        counts = await asyncio.gather(*(scope.count(query) for query in queries))
        return {state.name: count.value for state, count in zip(TaskState, counts, strict=True)}

    async def show_task(self, call: OpsCall) -> bytes:
        task = await self._tasks.load(call.task_id, call.principal)
        item = await task.scope.work(QUEUE, call.task_id)
        page = await task.scope.read_log(EVENTS, call.task_id, limit=1)
        view, record = task.view, task.record
        error = await self._last_error(task) if call.operator else None
        about = {
            "partition": task.scope.partition,
            "version": task.version,
            "floor": page.floor,
            "created": timestamp(record.created),
            "turn": record.turn.json(),
            "runs": view.run,
            "cancelRequested": view.cancel is not None,
            "pendingMessages": len(view.pending),
            "steps": {
                name: {"state": _step_state(step.state, step.run, view.run), "result": step.result}
                for name, step in view.steps.items()
            },
            "work": None
            if item is None
            else {
                "state": item.state,
                "holder": item.holder,
                "attempt": item.attempt,
                "maxAttempts": item.max_attempts,
                "priority": item.priority,
                "readyIn": round(item.ready_in, 3),
                "reason": reason_shown(call, item.reason),
                **(await self._lease(item.holder) if item.holder else {}),
            },
            **({"exception": error} if error is not None else {}),
        }
        brief = call.query.get("brief") == "true"
        json = record_json(record) if brief else await self._store.task_json(task)
        if call.query.get("report") == "true":
            about["report"] = await self._report(call)
        return b'{"task":%b,%b' % (json, to_json(about)[1:])

    async def _lease(self, holder: str) -> dict[str, float | None]:
        """Return the remaining time of the holder's lease, its length, and the heartbeat interval."""
        left = (await self._kernel.count_work(())).workers.get(holder)
        settings = self._engine.runner.settings if self._engine.runner is not None else None
        return {
            "leaseIn": None if left is None else round(left, 3),
            "leaseSeconds": settings.lease_seconds if settings else None,
            "heartbeatSeconds": settings.heartbeat_seconds if settings else None,
        }

    async def _report(self, call: OpsCall) -> dict[str, Any]:
        """Return attempts, steps, steering and artifacts from the whole log. Only operators get exceptions."""
        found = await report(self._store, self._tasks.scope(call.principal), call.task_id)
        return {
            "attempts": [_dated(each) for each in found.attempts],
            "steps": [_dated(each) for each in found.steps],
            "steering": [_dated(each) for each in found.steering],
            "artifacts": [
                {
                    "artifactId": each.artifact_id,
                    "name": each.name,
                    "chunks": each.chunks,
                    "turn": each.turn,
                    "sealed": each.sealed,
                }
                for each in found.artifacts
            ],
            "errors": [_dated(each) for each in found.errors] if call.operator else [],
        }

    async def _last_error(self, task: StoredTask) -> dict[str, Any] | None:
        """Return the exception that ended the last turn: its entry is among the last ones of the log."""
        after = max(0, task.version - LAST_ENTRIES)
        try:
            page = await task.scope.read_log(EVENTS, task.record.task_id, after=after)
        except LogTrimmed:
            return None
        for entry in reversed(page.entries):
            if entry.kind == "error":
                return {"seq": entry.seq, "at": timestamp(entry.at), **from_json(entry.data)}
        return None

    async def read_log(self, call: OpsCall) -> bytes:
        scope = await self._scope(call)
        after = call.number("after", 0, low=0, high=2**53) if "after" in call.query else None
        limit = call.number("limit", 100, low=1, high=500)
        gap = False
        try:
            page = await scope.read_log(EVENTS, call.task_id, after=after, limit=limit)
        except LogTrimmed:  # the requested entries were trimmed; return the ones that are left
            gap = True
            page = await scope.read_log(EVENTS, call.task_id, limit=limit)
        return b'{"entries":[%b],"head":%d,"floor":%d,"gap":%b}' % (
            b",".join([entry_json(entry, operator=call.operator) for entry in page.entries]),
            page.head,
            page.floor,
            b"true" if gap else b"false",
        )

    async def read_inbox(self, call: OpsCall) -> bytes:
        scope = await self._scope(call)
        page = await scope.read_log(INBOX, call.task_id)
        entries = [entry_json(entry, operator=call.operator) for entry in page.entries]
        return b'{"entries":[%b],"head":%d}' % (b",".join(entries), page.head)

    async def _scope(self, call: OpsCall) -> Scope:
        """Return the scope of an existing task. Raises TaskNotFoundError."""
        scope = self._tasks.scope(call.principal)
        if await self._store.record(scope, call.task_id) is None:
            raise TaskNotFoundError(call.task_id)
        return scope

    # ------------------------------------------------------------------------------------------------------- write

    async def send_task(self, call: OpsCall) -> bytes:
        """Send a text as the owner that the call names, in the same way as a client's message."""
        if not (text := call.text("text")):
            raise InvalidParamsError("text is required; it is the message to send")
        message = Message(
            message_id=new_id(),
            role=Role.user,
            parts=[Part(text=text)],
            task_id=call.text("task") or None,
            context_id=call.text("context") or None,
        )
        return await self._send(message, call.principal)

    async def cancel_task(self, call: OpsCall) -> bytes:
        reason = call.text("reason")
        task = await self._tasks.cancel(call.task_id, call.principal, source=call.by, reason=reason)
        return await self._store.task_json(task)

    async def steer_task(self, call: OpsCall) -> bytes:
        payload = call.body.get("payload") or {}
        if not isinstance(payload, Mapping):
            raise InvalidParamsError("payload must be an object")
        kind: Any = call.text("kind")
        reason = call.text("reason")
        await self._tasks.steer(call.task_id, kind, call.principal, source=call.by, reason=reason, payload=payload)
        return to_json({"taskId": call.task_id, "kind": kind})

    async def requeue_task(self, call: OpsCall) -> bytes:
        who, scope = call.principal, self._tasks.scope(call.principal)
        if who is not call.caller and (record := await self._store.record(scope, call.task_id)) is not None:
            who = owner_of(scope, record) or who  # an operator repeats the request as its sender
        sent = await self._tasks.requeue(call.task_id, who)
        return to_json({"taskId": sent.task.record.task_id})

    async def fork_task(self, call: OpsCall) -> bytes:
        sent = await self._tasks.fork(call.task_id, call.number("seq", 0, low=1, high=2**53), call.principal)
        return to_json({"taskId": sent.task.record.task_id})

    async def erase_task(self, call: OpsCall) -> bytes:
        if not await erase_task(self._store, self._tasks.scope(call.principal), call.task_id):
            raise TaskNotFoundError(call.task_id)
        return b'{"erased":1}'

    async def erase_context(self, call: OpsCall) -> bytes:
        if call.query.get("everything") == "true":
            return to_json({"erased": await erase_owner(self._tasks.scope(call.principal))})
        context = call.text("context")
        check_context_id(context)
        return to_json({"erased": await erase_context(self._tasks.scope(call.principal), context)})

    # ----------------------------------------------------------------------------------------------------- streams

    async def follow_log(self, call: OpsCall) -> Frames:
        after = call.after
        if after is None and "after" in call.query:
            after = call.number("after", 0, low=0, high=2**53)
        scope = await self._scope(call)  # raise TaskNotFoundError before the stream starts
        yield b"", None
        events = self._engine.events.follow(scope, call.task_id, after=after)
        try:
            async for event in events:
                if isinstance(event, TaskSnapshot):
                    json = await self._store.task_json(event.task)
                    gap = b"true" if event.gap else b"false"
                    yield b'{"snapshot":%b,"seq":%d,"gap":%b}' % (json, event.seq, gap), event.seq
                else:
                    yield entry_json(event, operator=call.operator), event.seq
        finally:
            await events.aclose()

    async def watch_tasks(self, call: OpsCall) -> Frames:
        """Stream changes of tasks. A reader that can't keep up is disconnected, and reconnects."""
        scope = self._tasks.scope(call.principal)
        async with self._watching.reader(scope) as reader:
            yield b"", None
            while not self._engine.events.closing and not (reader.lost and reader.news.empty()):
                record = await reader.next(WATCH_SECONDS)
                if record is not None:
                    yield await self._summaries.json(scope, record), None


def entry_json(entry: Entry, *, operator: bool) -> bytes:
    """Return the JSON of a log entry, with its data as stored. Only operators get the content of an error."""
    data = b"{}" if entry.kind == "error" and not operator else entry.data or b"null"
    return b'{"seq":%d,"kind":%b,"at":"%b","data":%b}' % (
        entry.seq,
        to_json(entry.kind),
        timestamp(entry.at).encode(),
        data,
    )


def reason_shown(call: OpsCall, reason: str | None) -> str | None:
    """Return the reason why a task was given up or an attempt failed; only operators get the text of an error."""
    return reason if call.operator or reason in (None, "", EXHAUSTED, UNCLEANED) else GIVEN_UP


def _step_state(state: str, run: int, current: int) -> str:
    """Return the state of a step; a step of an earlier run without a recorded end is in doubt."""
    return "in doubt" if state in ("started", "asked") and run < current else state


def _dated(found: Attempt | StepReport | Steered | WorkerFailure) -> dict[str, Any]:
    """Return the JSON of a part of a report: camelCase names, times as timestamps."""
    about = asdict(found)
    if "in_doubt" in about:
        about["inDoubt"] = about.pop("in_doubt")
    return {**about, "at": None if found.at is None else timestamp(found.at)}


def _state(text: str) -> TaskState:
    try:
        return TaskState(text)
    except ValueError:
        raise InvalidParamsError(f"state must be one of {', '.join(state.name for state in TaskState)}") from None


# ---------------------------------------------------------------------------------------------------------------- files


_DIGEST = re.compile(r"[0-9a-f]{64}")


class FileOperations:
    """The handler of the route for files; its response is not JSON."""

    def __init__(self, engine: TaskEngine) -> None:
        self._tasks = engine.tasks

    async def read_file(self, call: OpsCall) -> tuple[TaskFile, BlobReader]:
        digest = call.names["digest"]
        found = None
        if _DIGEST.fullmatch(digest):
            found = await open_file(self._tasks.scope(call.principal), call.task_id, digest)
        if found is None:
            raise MethodNotFoundError("there is no such file")
        return found


# --------------------------------------------------------------------------------------------------------- dead letters


class DeadOperations:
    """The handlers of the routes for dead letters."""

    def __init__(self, engine: TaskEngine) -> None:
        self._engine = engine

    async def list_dead(self, call: OpsCall) -> bytes:
        letters, token = await self._page(call)
        return to_json({"dead": [_json(call, letter) for letter in letters], "nextPageToken": token})

    async def requeue_dead(self, call: OpsCall) -> bytes:
        """Requeue a page of dead letters. Those with an unknown sender, or that can't be sent again, are kept."""
        letters, token = await self._page(call)
        requeued, kept = list[dict[str, str]](), list[str]()
        for letter in letters:
            try:
                who = letter.principal
                sent = None if who is None else await self._engine.tasks.requeue(letter.task_id, who)
            except (TaskNotFoundError, UnsupportedOperationError):
                sent = None
            if sent is None:
                kept.append(letter.task_id)
            else:
                requeued.append({"taskId": letter.task_id, "newTaskId": sent.task.record.task_id})
        return to_json({"requeued": requeued, "kept": kept, "nextPageToken": token})

    async def drop_dead(self, call: OpsCall) -> bytes:
        if not await drop(self._engine.tasks.scope(call.principal), call.task_id):
            raise TaskNotFoundError(call.task_id)
        return b'{"dropped":1}'

    async def drop_all_dead(self, call: OpsCall) -> bytes:
        letters, token = await self._page(call)
        dropped = [await drop(letter.scope, letter.task_id) for letter in letters]
        return to_json({"dropped": sum(dropped), "nextPageToken": token})

    async def _page(self, call: OpsCall) -> tuple[list[DeadLetter], str]:
        async def read(scope: Scope, limit: int, cursor: str | None) -> tuple[tuple[DeadLetter, ...], str | None]:
            page = await dead_letters(self._engine.store, scope, limit=limit, cursor=cursor)
            return page.letters, page.cursor

        return await page_of(self._engine.kernel, call, read)


def _json(call: OpsCall, letter: DeadLetter) -> dict[str, Any]:
    return {
        "taskId": letter.task_id,
        "partition": letter.scope.partition,
        "attempts": letter.attempts,
        "reason": reason_shown(call, letter.reason),
        "state": letter.record.state.name if letter.record is not None else None,
    }
