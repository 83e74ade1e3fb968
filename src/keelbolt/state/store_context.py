"""Shared by the capabilities of one store: the host, the partition, the classes, the error policy, and the health."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from keelbolt.errors import (
    InvalidState,
    KeelboltError,
    StateNotLoaded,
    StateNotSaved,
    StateStoreError,
    StateTimeout,
    StorageClosed,
)
from keelbolt.kernel import Health, Kernel, Operation, Put, Scope
from keelbolt.state.classes import Types
from keelbolt.state.codec import Fallback, encode
from keelbolt.state.engine.connection import BreakerState, Counters, PolicyName, tell_load_failed, tell_save_failed
from keelbolt.state.engine.host import SharedHost, claimed
from keelbolt.state.engine.writes import SAVED, ErasureGuard, Saved, Saving, StateWrite
from keelbolt.state.families import MEMORY, SESSIONS, TRACES
from keelbolt.state.names import GLOBAL, name
from keelbolt.state.retention import StateSweeper

T = TypeVar("T")
Notes = tuple[Put, ...]

SWEEP_AT_MOST_SECONDS = 600.0  # time limit of one sweep; the next sweep continues where it stopped
PATIENCE = 6  # timeouts to wait for a result that must not be lost, after its caller was cancelled
KNOWN = 4096  # sessions, traces and memories whose use this process remembers
NOTE_SECONDS = 3600.0  # interval of notes; the time of the last note shows which sessions and traces are in use


class StoreContext:
    """One for each store. ``behind`` enables write-behind for the saves that allow it."""

    def __init__(
        self,
        host: SharedHost,
        partition: str,
        types: Types,
        *,
        policy: PolicyName,
        timeout_seconds: float,
        behind: bool,
        fallback: Fallback,
        max_waiting: int,
        sweeper: StateSweeper,
    ) -> None:
        self.host = host
        self.partition = partition
        self.types = types
        self.policy = policy
        self.counters = Counters()
        self.timeout_seconds = timeout_seconds
        self._behind = behind
        self._fallback = fallback
        self._max_waiting = max_waiting
        self._sweeper = sweeper
        self._known: OrderedDict[tuple[str, str], ErasureGuard] = OrderedDict()
        self._lost = 0  # lost writes at the last check; lost writes may include notes
        self._lost_at = -math.inf
        self._last_tick = 0

    def encode(self, value: Any) -> bytes:
        """Encode the value; later changes to it have no effect."""
        return encode(value, self._fallback)

    def tick(self) -> int:
        """Return the time in microseconds since 1970, strictly increasing."""
        self._last_tick = max(self._last_tick + 1, time.time_ns() // 1000)
        return self._last_tick

    def save(
        self,
        method: str,
        operations: tuple[Operation, ...],
        size: int,
        *,
        trace_id: str | None = None,
        key: str | None = None,
        behind: bool = False,
        vital: bool = False,
        alternative: tuple[Operation, ...] | None = None,
        checks: tuple[Operation, ...] = (),
        lives: tuple[ErasureGuard, ...] = (),
    ) -> Saved:
        """Pass a write to the host. Awaiting the result waits for the commit; if the write allows ``behind`` and the
        store has write_behind=True, it returns at once.

        ``behind`` is for writes that consist of Put and Append. ``checks`` and ``lives`` are those of `StateWrite`.
        """
        write = StateWrite(
            self.partition,
            method,
            operations,
            size,
            trace_id,
            alternative=alternative,
            vital=vital,
            plain=behind,
            key=key,
            checks=checks,
            lives=lives,
        )
        if not (behind and self._behind) or self._crowded():
            write.outcome = Saving()
        loss = self.loss()
        try:
            self.host.post(write)
        except StorageClosed as error:
            tell_save_failed(method, trace_id, error, key=key)
            if self.policy == "resilient" and not vital:
                return SAVED
            raise StateNotSaved(method, error) from error
        if self._sweeper.due():
            with contextlib.suppress(StorageClosed):
                self.host.begin(self._sweeper.sweep, seconds=SWEEP_AT_MOST_SECONDS, background=True)
        if loss is not None:
            raise loss
        return write.outcome or SAVED

    def loss(self) -> BaseException | None:
        """Return the first lost save that no caller awaited, once; None under ``resilient``."""
        writer = self.host.writer
        return writer.loss(self.partition) if writer is not None and self.policy == "strict" else None

    async def load(
        self,
        method: str,
        read: Callable[[Scope], Awaitable[T]],
        *,
        trace_id: str | None = None,
        key: str | None = None,
        unclaimed: Callable[[T], None] | None = None,
        changes: bool = False,
    ) -> T:
        """Return the result of ``read``, called after all earlier saves. Raise StateNotLoaded, also under
        ``resilient``: a failed load must not look like missing data.

        ``unclaimed`` receives the result if it arrives after the caller was cancelled. ``changes``: the function reads
        in order to write, and errors are reported as for a save.
        """
        if (loss := self.loss()) is not None:
            raise loss
        writer = self.host.writer
        error: BaseException
        if self.policy == "resilient" and writer is not None and not writer.breaker.admits():
            error = StateTimeout("the storage did not respond recently; the next attempt is made later")
        else:
            try:
                async with asyncio.timeout(self.timeout_seconds):
                    found = await self._asked(read, unclaimed)
            except StateStoreError:
                raise
            except TimeoutError:
                error = StateTimeout(f"the storage did not respond within {self.timeout_seconds:g} seconds")
            except Exception as refusal:
                if self.policy == "strict" and not isinstance(refusal, KeelboltError):
                    raise  # a bug in this program; under resilient it is logged
                error = refusal
            else:
                self.counters.loaded += 1
                if (writer := self.host.writer) is not None and not writer.recovery.active:
                    writer.breaker.succeeded()
                return found
            if (writer := self.host.writer) is not None:
                writer.breaker.failed()
        self.counters.load_failures += 1
        (tell_save_failed if changes else tell_load_failed)(method, trace_id, error, key=key)
        raise (StateNotSaved if changes else StateNotLoaded)(method, error) from error

    async def _asked(self, read: Callable[[Scope], Awaitable[T]], unclaimed: Callable[[T], None] | None) -> T:
        call = self.scoped(read)
        if unclaimed is None:
            return await self.host.ask(call)
        return await claimed(self.host, call, unclaimed, seconds=PATIENCE * self.timeout_seconds)

    def scoped(self, work: Callable[[Scope], Awaitable[T]]) -> Callable[[Kernel], Awaitable[T]]:
        """Wrap the work for the host: it runs in the scope of this tenant, on the kernel that is open at that time."""
        return lambda kernel: work(kernel.scoped(self.partition))

    def session(self, session_id: str) -> ErasureGuard:
        """Return the `ErasureGuard` of the session in this process."""
        return self._life(SESSIONS, session_id)

    def memory(self, key: str) -> ErasureGuard:
        """Return the `ErasureGuard` of the memory in this process."""
        return self._life(MEMORY, key)

    def note(
        self, *, session_id: str | None = None, trace_id: str | None = None
    ) -> tuple[tuple[ErasureGuard, ...], Notes]:
        """Return the erasure checks for a write to this session or trace, and the notes that list it.

        The notes are empty if this process has written them recently.
        """
        named = ((SESSIONS, session_id), (TRACES, trace_id))
        found = [(self._life(collection, text), collection, text) for collection, text in named if text is not None]
        notes = [self._note(life, collection, text) for life, collection, text in found if self._is_due(life)]
        return tuple([life for life, _, text in found if text != GLOBAL]), tuple(notes)

    def _life(self, collection: str, text: str) -> ErasureGuard:
        known, key = self._known, (collection, text)
        life = known.get(key)
        if life is None:
            life = known.setdefault(key, ErasureGuard(collection, name(text)))
            if len(known) > KNOWN:
                known.popitem(last=False)
        else:
            with contextlib.suppress(KeyError):  # another thread has just removed it
                known.move_to_end(key)  # a session in use is not forgotten
        return life

    def _is_due(self, life: ErasureGuard) -> bool:
        writer, now = self.host.writer, time.monotonic()
        if writer is not None and writer.counters.lost != self._lost:
            self._lost, self._lost_at = writer.counters.lost, now
        return life.noted <= max(now - NOTE_SECONDS, self._lost_at)

    def _note(self, life: ErasureGuard, collection: str, text: str) -> Put:
        life.noted = time.monotonic()
        return Put(collection, name(text), self.encode(text), {"seen": self.tick()})

    def _crowded(self) -> bool:
        writer = self.host.writer
        return writer is not None and writer.waiting > self._max_waiting


def wanted(value: Any, kind: str, *attributes: str) -> None:
    """Raise InvalidState if the value lacks one of these attributes."""
    for attribute in attributes:
        if not hasattr(value, attribute):
            raise InvalidState(f"the value must be a {kind}, not {type(value).__name__}: it has no {attribute}")


# --------------------------------------------------------------------------------------------------------------- health


@dataclass(frozen=True, slots=True)
class StateHealth:
    """The health of a store.

    ``waiting``: writes not committed yet; ``in_spool``: writes to be replayed; ``detail``: a message for operators.
    """

    engine: str
    policy: PolicyName
    reads: bool
    writes: bool
    detail: str
    breaker: BreakerState
    waiting: int
    in_spool: int
    counters: Counters


async def health_of(desk: StoreContext) -> StateHealth:
    """Check the health within the timeout of a load; never raises."""

    async def look(kernel: Kernel) -> Health:
        return await kernel.health()

    try:
        async with asyncio.timeout(desk.timeout_seconds):
            found = await desk.host.ask(look)
        engine, reads, writes, detail = found.engine, found.reads, found.writes, found.detail
    except Exception as error:  # noqa: BLE001  (every error is reported as the health)
        engine, reads, writes, detail = "", False, False, str(error) or repr(error)
    writer = desk.host.writer
    return StateHealth(
        engine=engine,
        policy=desk.policy,
        reads=reads,
        writes=writes,
        detail=detail,
        breaker=writer.breaker.state if writer is not None else "closed",
        waiting=writer.waiting if writer is not None else 0,
        in_spool=len(writer.recovery.spool) if writer is not None else 0,
        counters=counters_of(desk),
    )


def counters_of(desk: StoreContext) -> Counters:
    """Return the combined counters of this store's writer and reads."""
    saves = desk.host.writer.counters if desk.host.writer is not None else Counters()
    return replace(saves, loaded=desk.counters.loaded, load_failures=desk.counters.load_failures)
