"""Pending writes: their combination into one commit, their results, and the guard against erased sessions and traces.

Callers can treat the result of a ``save_*`` call as a coroutine (`asyncio.create_task` accepts it), but need not await
it: the call itself passes the write on, and writes are saved in call order even if no caller awaits them.

The guard refuses late writes of a process to a session or trace that was erased meanwhile. An erasure leaves a
tombstone, whose version counts the erasures. A process remembers the version that it found at its first write, and each
of its writes checks that the version is still the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec

from keelbolt.data.families import TOMBSTONES, tombstone_key
from keelbolt.eager import FinishedCall
from keelbolt.errors import CommitRefused, KeelboltError, LeaseLost, StateErased
from keelbolt.kernel import Absent, Append, Draft, Operation, Put, Scope, Version
from keelbolt.state.families import EVENTS, PLANNER_EVENTS

GROUP_ENTRIES = 400
GROUP_BYTES = 4 * 1024 * 1024

# The logs whose items come in bursts, and the kinds of their entries: one item, or a JSON list of items that arrived
# together. Ten items in one entry cost a tenth of ten entries.
BURSTS = frozenset({EVENTS, PLANNER_EVENTS})
ONE = "one"
MANY = "many"


@dataclass(slots=True, eq=False)
class StateWrite:
    """The write of one ``save_*`` call.

    ``outcome`` is None for a write-behind save. ``alternative`` is written instead if a check of ``operations`` is
    refused. ``vital``: its loss is raised also under ``resilient``. ``plain``: its operations are Put and Append and
    can share a commit with other plain writes. ``checks`` are the fences of the task that makes this write; ``lives``
    are the sessions and traces that it belongs to: if one was erased, the write is refused.
    """

    partition: str
    method: str
    operations: tuple[Operation, ...]
    size: int
    trace_id: str | None = None
    outcome: Saving | None = None
    alternative: tuple[Operation, ...] | None = None
    vital: bool = False
    plain: bool = False
    key: str | None = None  # logged if there is no trace
    checks: tuple[Operation, ...] = ()
    lives: tuple[ErasureGuard, ...] = ()
    number: int = 0  # position in call order, set by the writer
    spooled_at: float = 0.0  # Unix time, if it was spooled

    @property
    def certain(self) -> tuple[Operation, ...]:
        """The operations to write if the stored state is unknown."""
        return self.alternative or self.operations

    @property
    def count(self) -> int:
        """The number of operations and checks."""
        return len(self.operations) + len(self.checks) + len(self.lives)

    @property
    def guards(self) -> tuple[Operation, ...]:
        """The checks that every form of this write needs, for the current state of its sessions and traces."""
        return (*self.checks, *(life.check for life in self.lives))


def keys_of(operations: Iterable[Operation]) -> list[tuple[str, str]]:
    """Return the records that these operations put."""
    return [(operation.collection, operation.key) for operation in operations if isinstance(operation, Put)]


def bundled(drafts: Sequence[Draft]) -> tuple[Draft, ...]:
    """Combine entries of kinds ONE and MANY into entries of kind MANY. Only for the logs in BURSTS."""
    if len(drafts) == 1:
        return tuple(drafts)
    bundles: list[list[bytes]] = []
    size = GROUP_BYTES
    for draft in drafts:
        size += len(draft.data)
        if size > GROUP_BYTES:
            bundles.append([])
            size = len(draft.data)
        bundles[-1].append(draft.data if draft.kind == ONE else draft.data[1:-1])
    return tuple(Draft(MANY, b"[%b]" % b",".join(items)) for items in bundles)


def merged(writes: Sequence[StateWrite]) -> tuple[Operation, ...]:
    """Combine the writes into one commit: entries of one stream together, for each record the last Put.

    Only for ``plain`` writes.
    """
    if len(writes) == 1:
        return (*writes[0].guards, *writes[0].operations)
    guards = dict.fromkeys(guard for write in writes for guard in write.guards)
    entries: dict[tuple[str, str], list[Draft]] = {}
    puts: dict[tuple[str, str], Put] = {}
    for write in writes:
        for operation in write.operations:
            if isinstance(operation, Append):
                entries.setdefault((operation.log, operation.stream), []).extend(operation.entries)
            elif isinstance(operation, Put):
                puts[operation.collection, operation.key] = operation
    appends = (
        Append(log, stream, bundled(drafts) if log in BURSTS else tuple(drafts))
        for (log, stream), drafts in entries.items()
    )
    return (*guards, *appends, *puts.values())


# --------------------------------------------------------------------------------------------------------------- saving


P = ParamSpec("P")


class Saved(FinishedCall):
    """The result of a save that is already acknowledged."""

    __slots__ = ()


class Saving(Saved):
    """Done when the write is committed, spooled or lost. ``heard``: a caller awaits it.

    The write continues if a waiting caller is cancelled. `settle` sets ``done`` before it reads the waiters, and a
    caller adds its waiter before it reads ``done``: so each waiter is woken, without a lock.
    """

    __slots__ = ("done", "error", "heard", "steps", "waiters")

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None
        self.heard = False
        self.waiters: list[asyncio.Future[None]] = []
        self.steps: Generator[Any, Any, None] | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        self.heard = True
        if not self.done:
            waiter = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            if not self.done:
                yield from waiter
        if self.error is not None:
            raise self.error

    def send(self, value: Any) -> Any:
        if self.steps is None:
            self.steps = self.__await__()
        return self.steps.send(value)

    def throw(self, kind: Any, value: BaseException | object = None, at: TracebackType | None = None) -> Any:
        if self.steps is None:
            return super().throw(kind, value, at)
        return self.steps.throw(value if isinstance(value, BaseException) else kind)

    def close(self) -> None:
        if self.steps is not None:
            self.steps.close()


SAVED = Saved()


def settle(savings: Iterable[Saving], error: BaseException | None = None) -> None:
    """Complete these saves, from any thread. Each event loop with waiting callers is woken once for all of them.

    Waking it for each save would cost a system call and a thread switch per save.
    """
    waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for saving in savings:
        saving.error = error
        saving.done = True
        for waiter in saving.waiters:
            waiting.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, waiters in waiting.items():
        if loop is asyncio._get_running_loop():  # noqa: SLF001  (the public functions raise if no loop runs)
            _wake(waiters)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and its callers are gone
                loop.call_soon_threadsafe(_wake, waiters)


def _wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def refused(error: BaseException) -> Saving:
    """Return a save that failed before it was passed on."""
    saving = Saving()
    settle((saving,), error)
    return saving


def handed_over(save: Callable[P, Saved]) -> Callable[P, Saved]:
    """Make a ``save_*`` look like a coroutine function: `inspect.iscoroutinefunction` and `AsyncMock` recognise it.

    An error of the call is raised when the result is awaited, as with a coroutine function.
    """

    @wraps(save)
    def saving(*args: P.args, **kwargs: P.kwargs) -> Saved:
        try:
            return save(*args, **kwargs)
        except KeelboltError as error:
            return refused(error)

    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(saving)
    # Python 3.11 has no marker; it reads this flag, which does not change how the function runs.
    code = saving.__code__  # type: ignore[attr-defined]
    saving.__code__ = code.replace(co_flags=code.co_flags | inspect.CO_COROUTINE)  # type: ignore[attr-defined]
    return saving


async def background_saves() -> None:
    """Wait for the tasks in which PenguiFlow's planners of this loop save events; PenguiFlow does not await them."""
    current = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("penguiflow-persist-")]
    if waiting := [task for task in tasks if task is not current]:
        await asyncio.wait(waiting)


# -------------------------------------------------------------------------------------------------------- erasure guard


class ErasureGuard:
    """Tracks, in this process, whether a session or trace was erased.

    ``check`` is the operation that each write includes. ``noted`` is the time of this process's last note (monotonic,
    in seconds). Used by the threads of callers and of the kernel.
    """

    __slots__ = ("_key", "_used", "_version", "check", "noted")

    def __init__(self, collection: str, key: str) -> None:
        self._key = tombstone_key(collection, key)
        self._used = False
        self._version = 0
        self.not_noted()
        self._expect(0)

    def not_noted(self) -> None:
        """Make a note due: the last one was not stored, or is erased."""
        self.noted = -math.inf

    def _expect(self, version: int) -> None:
        """Expect this version of the tombstone; 0 means that there is none."""
        if version != self._version:
            self.not_noted()
        self._version = version
        self.check = Version(TOMBSTONES, self._key, version) if version else Absent(TOMBSTONES, self._key)

    async def begin(self, scope: Scope) -> None:
        """Accept the current version, also after an erasure: this process loads the current data."""
        tombstone = await scope.get(TOMBSTONES, self._key)
        self._expect(0 if tombstone is None else tombstone.version)
        self._used = True

    def written(self) -> None:
        """Record a committed write. After it, an erasure causes the next write to be refused."""
        self._used = True

    def goes_on(self, refusal: CommitRefused) -> bool:
        """Return whether a refused write may be retried: it was the first one, and the erasure preceded it."""
        if not is_tombstone(refusal) or getattr(refusal.check, "key", None) != self._key:
            return False
        assert isinstance(refusal.found, int)
        if refusal.found > self._version and self._used:
            return False
        self._expect(refusal.found)  # lower than before if the tombstone has expired
        return True


def is_tombstone(refusal: CommitRefused) -> bool:
    """Return whether a tombstone caused the refusal."""
    return isinstance(refusal.check, Absent | Version) and refusal.check.collection == TOMBSTONES


def refused_for_good(method: str, refusal: CommitRefused) -> LeaseLost | StateErased | None:
    """Return the error if another process holds the task or the session was erased; None for other refusals."""
    error: LeaseLost | StateErased
    if refusal.reason == "fence":
        error = LeaseLost()
    elif is_tombstone(refusal):
        error = StateErased(method, refusal)
    else:
        return None
    error.__cause__ = refusal
    return error
