"""The queue of an iteration's writes.

A *deferred* write waits until its iteration succeeds; then all are made in call order, within the unit of work if
there is one. An *immediate* write is made when it is awaited (or at the end of the iteration, if it was not awaited);
only its effect on the turn's sets waits for success.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from keelbolt.eager import FinishedCall, Started
from keelbolt.errors import DispatchFlushError, InvalidLlmExecutionContext
from keelbolt.turns.abort import ends_task
from keelbolt.turns.events import Kind
from keelbolt.turns.sets import SetWrite

Mode = Literal["deferred", "immediate"]
Persistence: TypeAlias = "Mode | Mapping[str, Mode]"
Mark: TypeAlias = Callable[[], Awaitable[None]]
_log = logging.getLogger(__name__)


def mode_of(persistence: Persistence, kind: Kind) -> Mode:
    """Return the mode of writes of this kind."""
    if isinstance(persistence, str):
        return persistence
    return persistence.get(kind) or persistence.get("*") or "deferred"


@dataclass(slots=True, eq=False)
class _Entry:
    """A write in the queue; ``made`` once it is stored, ``error`` if an immediate one failed or was interrupted."""

    write: SetWrite
    mode: Mode
    made: bool = False
    error: BaseException | None = None

    @property
    def tried(self) -> bool:
        return self.made or self.error is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Target of writes: ``perform`` calls storage, ``mirror`` updates the turn's sets, ``tell`` fires the hook."""

    perform: Callable[[SetWrite], Awaitable[Any]]
    mirror: Callable[[SetWrite], None]
    tell: Callable[[SetWrite], None]
    unit_of_work: Callable[[], AbstractAsyncContextManager[Any]] | None = None


class WriteQueue:
    """Writes that are not yet in storage, or not yet in the turn's sets."""

    __slots__ = ("_closed", "_entries", "_failure", "_lock", "_persistence", "_to", "_unmade")

    def __init__(self, to: Destination, persistence: Persistence) -> None:
        self._to = to
        self._persistence = persistence
        self._entries: list[_Entry] = []
        self._unmade: deque[_Entry] = deque()  # immediate writes that were not awaited yet
        self._lock = asyncio.Lock()
        self._failure: DispatchFlushError | None = None
        self._closed = False

    @property
    def pending(self) -> tuple[SetWrite, ...]:
        """The writes that are not yet in storage, in call order."""
        return tuple(entry.write for entry in self._entries if not entry.made)

    def check_open(self) -> None:
        if self._closed:
            raise InvalidLlmExecutionContext("this dispatch has ended, and a write would be lost. Store before it ends")

    def put(self, write: SetWrite) -> Coroutine[Any, Any, None]:
        """Queue the write now, whether or not the returned coroutine is awaited."""
        entry = _Entry(write, mode_of(self._persistence, write.kind))
        self._entries.append(entry)
        if entry.mode == "deferred":
            return FinishedCall()
        self._unmade.append(entry)
        return Started(lambda: self._finish(entry))

    async def flush(self, mark: Mark | None = None) -> None:
        """Store all queued writes and apply them to the turn's sets; raise DispatchFlushError on failure.

        After a failure every later call fails too, so that unstored writes are not taken for stored. The same holds
        for a flush cancelled midway, since its stored part is unknown. ``mark`` is called after the last write, within
        the same unit of work, even if there is nothing to write.
        """
        async with self._lock:
            while self._failure is None and (self._entries or self._unmade or mark is not None):
                await self._make_all()
                self._blame_untold()
                taken, self._entries = self._entries, []
                if self._failure is None:
                    flushed = self._flush_together if self._to.unit_of_work else self._flush_singly
                    await flushed(taken, mark)
                mark = None
        if self._failure is not None:
            raise self._failure

    async def discard(self) -> None:
        """Drop deferred writes; immediate ones are still made, as if they had been awaited."""
        async with self._lock:
            await self._make_all()
        for entry in self._entries:
            if entry.error is not None:
                _log.warning("%s, which was not awaited, failed: %s", entry.write, entry.error)
        self._entries.clear()

    def close(self) -> None:
        """Drop everything; later writes raise."""
        self._entries.clear()
        self._unmade.clear()
        self._closed = True
        del self._to  # it may refer to the dispatch, whose queue this is

    async def _flush_together(self, taken: list[_Entry], mark: Mark | None) -> None:
        unmade = [entry for entry in taken if not entry.made]
        failed: _Entry | None = None
        if unmade or mark is not None:
            assert self._to.unit_of_work is not None
            try:
                async with self._to.unit_of_work():
                    for failed in unmade:
                        await self._to.perform(failed.write)
                    failed = None
                    if mark is not None:
                        await mark()
            except BaseException as error:  # noqa: BLE001 - raised by flush as the cause of its failure
                others = [entry.write for entry in unmade if entry is not failed]
                self._fail(DispatchFlushError((), failed and failed.write, others, cause=error))
                return
        for entry in taken:
            self._to.mirror(entry.write)
        for entry in unmade:
            entry.made = True
            self._to.tell(entry.write)

    async def _flush_singly(self, taken: list[_Entry], mark: Mark | None) -> None:
        for index, entry in enumerate(taken):
            if not entry.made:
                try:
                    await self._to.perform(entry.write)
                except BaseException as error:  # noqa: BLE001 - raised by flush as the cause of its failure
                    applied = [one.write for one in taken[:index]]
                    rest = [one.write for one in taken[index + 1 :] if not one.made]
                    self._fail(DispatchFlushError(applied, entry.write, rest, cause=error))
                    return
            self._to.mirror(entry.write)
            if not entry.made:
                entry.made = True
                self._to.tell(entry.write)
        if mark is not None:
            try:
                await mark()
            except BaseException as error:  # noqa: BLE001 - raised by flush as the cause of its failure
                self._fail(DispatchFlushError([entry.write for entry in taken], cause=error))

    def _fail(self, failure: DispatchFlushError) -> None:
        self._failure = failure
        if failure.__cause__ is not None and ends_task(failure.__cause__):
            raise failure.__cause__

    async def _finish(self, entry: _Entry) -> None:
        """Make an immediate write, after the earlier ones that were not awaited."""
        try:
            if not entry.tried:
                async with self._lock:
                    while self._unmade and not entry.tried:
                        await self._make(self._unmade.popleft())
        finally:
            if entry.error is not None:  # the awaiting caller gets the error, so flush need not report it
                self._forget(entry)
        if entry.error is not None:
            raise entry.error

    async def _make_all(self) -> None:
        while self._unmade:
            await self._make(self._unmade.popleft())

    async def _make(self, entry: _Entry) -> None:
        try:
            await self._to.perform(entry.write)
        except BaseException as error:
            entry.error = error  # raised where the write is awaited, or by flush
            if ends_task(error):
                raise
            return
        entry.made = True
        self._to.tell(entry.write)

    def _blame_untold(self) -> None:
        for entry in self._entries:
            if entry.error is not None:
                rest = [one.write for one in self._entries if not one.made and one is not entry]
                made = [one.write for one in self._entries if one.made]
                self._failure = DispatchFlushError(made, entry.write, rest, cause=entry.error)
                return

    def _forget(self, entry: _Entry) -> None:
        self._entries = [held for held in self._entries if held is not entry]
