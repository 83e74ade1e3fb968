"""Lines of an export, back into a store. What has the same ids is replaced, what is there already stays once."""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from keelbolt.errors import InvalidState
from keelbolt.state.artifacts.order import Order
from keelbolt.state.artifacts.record import Kept
from keelbolt.state.artifacts.shelf import Shelf
from keelbolt.state.bindings import binding_fields
from keelbolt.state.codec import encode
from keelbolt.state.families import (
    ARTIFACTS,
    BINDINGS,
    CONTEXTS,
    CONTROLS,
    EVENTS,
    MEMORY,
    PATCHES,
    PLANNER_EVENTS,
    SESSIONS,
    SNAPSHOTS,
    STEERING,
    TASK_ORDER,
    TASKS,
    TRACES,
    TRAJECTORIES,
    UPDATES,
)
from keelbolt.state.names import digest, joined, name
from keelbolt.state.transfer.lines import check_first, parsed
from keelbolt.state.types import ArtifactRetentionConfig
from keelbolt.state.writes import ONE, Write, merged
from keelbolt.storage import Append, Draft, Operation, Put, Record, Scope

BATCH = 300  # lines in a commit; a line is at most three operations
BATCH_BYTES = 1024 * 1024

Line = dict[str, Any]
Tell = Callable[[str], None]


@dataclass(slots=True)
class Imported:
    """How many of each kind were read."""

    kinds: Counter[str] = field(default_factory=Counter)


async def import_state(
    scope: Scope, lines: Iterator[bytes], *, clock: Callable[[], float] = time.time, tell: Tell | None = None
) -> Imported:
    """Take an export in. Raises InvalidState for what is none, and for one that was cut: then what it held is there."""
    return await _Intake(scope, lines, clock, tell or (lambda _text: None)).run()


class _Intake:
    def __init__(self, scope: Scope, lines: Iterator[bytes], clock: Callable[[], float], tell: Tell) -> None:
        self._scope = scope
        self._lines = enumerate(lines, start=1)
        self._number = 0
        self._shelf = Shelf(scope, ArtifactRetentionConfig(), Order(clock))
        self._now = int(clock() * 1_000_000)
        self._tell = tell
        self._writes: list[Write] = []
        self._size = 0
        self._imported = Imported()

    async def run(self) -> Imported:
        check_first(self._next() or {"kind": ""})
        kinds = self._imported.kinds
        while (found := self._next()) is not None and found["kind"] != "end":
            kind = found["kind"]
            try:
                if kind == "artifact":
                    await self._flush()
                    await self._artifact(found)
                else:
                    self._take(_OPERATIONS[kind](found))
            except InvalidState:
                raise
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise InvalidState(f"line {self._number} is no {kind!r} of an export") from error
            kinds[kind] += 1
            if len(self._writes) >= BATCH or self._size >= BATCH_BYTES:
                await self._flush()
        await self._flush()
        if found is None:
            raise InvalidState(f"the export was cut after line {self._number}; what it held until there was imported")
        return self._imported

    def _next(self) -> Line | None:
        for number, text in self._lines:
            if text.strip():
                self._number = number
                return parsed(text, number)
        return None

    def _take(self, operations: tuple[Operation, ...]) -> None:
        self._writes.append(Write("", "import", operations, 0))
        for operation in operations:
            if isinstance(operation, Put):
                self._size += len(operation.body)
            elif isinstance(operation, Append):
                self._size += sum(len(draft.data) for draft in operation.entries)

    async def _flush(self) -> None:
        writes, self._writes, self._size = self._writes, [], 0
        if writes:
            await self._scope.commit(*merged(writes))
            self._tell(f"{self._number:,} lines")

    async def _artifact(self, found: Line) -> None:
        record = Record(ARTIFACTS, "", 0, encode(found["data"]), {"rank": found["rank"], "expires": found["expires"]})
        kept = Kept.of(record)
        chunks = self._chunks(found["chunks"])
        if kept.expires > self._now:
            await self._shelf.restore(kept, chunks)
        async for _ in chunks:  # those that nobody wanted
            pass

    async def _chunks(self, count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            found = self._next()
            if found is None or found["kind"] != "chunk":
                raise InvalidState(f"the bytes of an artifact are missing after line {self._number}")
            yield base64.b64decode(found["data"], validate=True)


# ------------------------------------------------------------------------------------------------- lines as operations


def _noted(collection: str) -> Callable[[Line], tuple[Operation, ...]]:
    return lambda found: (Put(collection, name(found["data"]), encode(found["data"]), {"seen": found["seen"]}),)


def _kept(collection: str) -> Callable[[Line], tuple[Operation, ...]]:
    return lambda found: (Put(collection, found["ref"], encode(found["data"]), found["fields"]),)


def _traced(log: str) -> Callable[[Line], tuple[Operation, ...]]:
    return lambda found: (Append(log, name(found["trace"]), (Draft(ONE, encode(found["data"])),)),)


def _sessioned(log: str, id_field: str) -> Callable[[Line], tuple[Operation, ...]]:
    def operations(found: Line) -> tuple[Operation, ...]:
        data = found["data"]
        draft = Draft(name(data["task_id"]), encode(data), name(data[id_field]))
        return (Append(log, name(data["session_id"]), (draft,)),)

    return operations


def _task(found: Line) -> tuple[Operation, ...]:
    data, context = found["data"], encode(found["context"])
    session, task, key = name(data["session_id"]), name(data["task_id"]), joined(data["session_id"], data["task_id"])
    operations: tuple[Operation, ...] = (
        Put(TASKS, key, encode(data), {"session": session}),
        Append(TASK_ORDER, session, (Draft("task", task.encode(), task),)),
    )
    if found["context"] is not None:
        operations += (Put(SNAPSHOTS, key, context, {"session": session, "hash": digest(context)}),)
    return operations


def _trajectory(found: Line) -> tuple[Operation, ...]:
    data = found["data"]
    trace, session = data["trace_id"], data["session_id"]
    fields = {"session": name(session), "trace": name(trace), "saved": found["saved"]}
    return (Put(TRAJECTORIES, joined(trace, session), encode(data), fields),)


def _binding(found: Line) -> tuple[Operation, ...]:
    data = found["data"]
    key = joined(data["trace_id"], data["context_id"], data["task_id"])
    return (Put(BINDINGS, key, encode(data), binding_fields(data, found["saved"])),)


def _memory(found: Line) -> tuple[Operation, ...]:
    data = found["data"]
    return (Put(MEMORY, name(data["key"]), encode(data), {"saved": found["saved"]}),)


_OPERATIONS: dict[str, Callable[[Line], tuple[Operation, ...]]] = {
    "session": _noted(SESSIONS),
    "trace": _noted(TRACES),
    "event": _traced(EVENTS),
    "planner_event": _traced(PLANNER_EVENTS),
    "update": _sessioned(UPDATES, "update_id"),
    "steering": _sessioned(STEERING, "event_id"),
    "task": _task,
    "trajectory": _trajectory,
    "binding": _binding,
    "memory": _memory,
    "context": _kept(CONTEXTS),
    "patch": _kept(PATCHES),
    "control": _kept(CONTROLS),
}
