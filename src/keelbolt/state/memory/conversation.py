"""The memory of one conversation: summarises in the background, retries, recovers, and stores the results.

All operations except calls of the summariser and the store run without an ``await``, so they are atomic.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keelbolt.errors import InvalidMemoryState, MemoryBudgetExceeded, StateConflict
from keelbolt.state.memory.contents import Contents
from keelbolt.state.memory.types import (
    ConversationTurn,
    MemoryHealth,
    ShortTermMemoryConfig,
    after_failure,
    dump,
    own,
    shown,
    when_loaded,
)

Summarizer = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]

log = logging.getLogger("keelbolt.state.memory")


class MemoryConversation:
    """One conversation. ``clock`` is in seconds, with any starting point."""

    def __init__(
        self,
        config: ShortTermMemoryConfig,
        summarizer: Summarizer | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._config = config
        self._summarizer = summarizer
        self._clock = clock
        self._sleep = sleep
        self._contents = Contents(config)
        self._health = MemoryHealth.HEALTHY
        self._failures = 0
        self._next_recovery = 0.0
        self._home: tuple[Any, str] | None = None
        self._known: KnownMemory = NOTHING
        self._absorbed: list[ConversationTurn] = []
        self._work: asyncio.Task[None] | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._callbacks: set[asyncio.Task[None]] = set()
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def health(self) -> MemoryHealth:
        """Health of summarising."""
        return self._health

    @property
    def summary(self) -> str:
        """The summary of the turns that are no longer kept in full."""
        return self._contents.summary

    @property
    def idle(self) -> bool:
        """Whether everything is stored, so that this process can evict the conversation."""
        return self._home is not None and not _runs(self._work) and not _runs(self._recovery)

    # -------------------------------------------------------------------------------------------------------- turns

    async def add_turn(self, turn: ConversationTurn) -> None:
        """Add a turn. If the policy is "error" and it does not fit, raise MemoryBudgetExceeded and drop it."""
        if self._config.strategy == "none":
            return
        self._contents.add(own(turn), self._health)
        if self._config.on_turn_added is not None:
            self._start_callback(self._config.on_turn_added(turn))
        self._start()

    async def get_llm_context(self) -> Mapping[str, Any]:
        """Return the memory's part of the model context: ``conversation_memory``, or nothing."""
        if self._config.strategy == "none":
            return {}
        return {"conversation_memory": self._contents.context(self._health)}

    def estimate_tokens(self) -> int:
        """Return the estimated tokens of the context."""
        return self._contents.tokens(self._health)

    # -------------------------------------------------------------------------------------------------- summarising

    async def flush(self) -> None:
        """Return when all pending turns are summarised and stored, or when summarising is degraded."""
        while self._contents.pending and self._health in (MemoryHealth.HEALTHY, MemoryHealth.RETRY):
            self._start()
            if not _runs(self._work):  # another strategy loaded turns that a rolling summary left pending
                break
            await _ended(self._work)
        await _ended(self._work)  # it may still be storing the last summary
        if self._absorbed:  # the loop that should have stored it has ended
            await self._store_again()

    async def close(self) -> None:
        """Stop the background tasks. Pending turns stay pending, in the store as well."""
        for task in (self._work, self._recovery):
            if task is not None and _runs(task):
                task.cancel()
                await _ended(task)

    def _start(self) -> None:
        """Start summarising pending turns, unless it is running."""
        if self._config.strategy != "rolling_summary":
            return
        if self._health is MemoryHealth.RECOVERING:
            if _runs(self._recovery):
                return
            self._become(MemoryHealth.DEGRADED)  # the loop in which it recovered has ended
        if self._health is MemoryHealth.DEGRADED:
            if not _runs(self._recovery):
                self._recovery = asyncio.create_task(self._recover())
        elif self._contents.pending and not _runs(self._work):
            self._work = asyncio.create_task(self._summarise())

    async def _summarise(self) -> None:
        while self._contents.pending and self._health is not MemoryHealth.DEGRADED:
            await self._attempt(list(self._contents.pending))
            if self._health is MemoryHealth.RETRY:
                await self._sleep(self._config.retry_backoff_base_s * 2 ** (self._failures - 1))
        self._start()  # starts the recovery if summarising is degraded

    async def _recover(self) -> None:
        while self._health is MemoryHealth.DEGRADED:
            if (wait := self._next_recovery - self._clock()) > 0:
                await self._sleep(wait)
            if self._contents.backlog:
                self._become(MemoryHealth.RECOVERING)
                await self._attempt(list(self._contents.backlog))
            else:
                self._become(MemoryHealth.HEALTHY)  # no backlog: the next turns test the summariser
        self._start()  # for turns added meanwhile

    async def _attempt(self, turns: Sequence[ConversationTurn]) -> None:
        previous = self._contents.summary
        digest = self._config.include_trajectory_digest
        request = {"previous_summary": previous, "turns": [shown(turn, digest=digest) for turn in turns]}
        try:
            summary = _summary_of(await self._ask(request))
            if self._contents.summary != previous:
                return  # another process stored its summary first, and it has been read
            self._contents.summarised(summary, turns)
            self._absorbed += turns
        except Exception as error:  # noqa: BLE001  (a failing summariser must not stop the conversation)
            log.warning("memory_summarize_failed", extra={"exception": repr(error), "turns": len(turns)})
            self._failed()
        else:
            self._failures = 0
            if self._health is MemoryHealth.RECOVERING:
                self._contents.resume()
            if self._config.on_summary_updated is not None:
                self._start_callback(self._config.on_summary_updated(previous, summary))
            self._become(MemoryHealth.HEALTHY)
        await self._store_again()

    async def _ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        assert self._summarizer is not None
        return await self._summarizer(request)

    def _failed(self) -> None:
        self._failures += 1
        health = after_failure(self._health, failures=self._failures, attempts=self._config.retry_attempts)
        if health is MemoryHealth.DEGRADED:
            self._contents.give_up()
            self._failures = 0
            self._next_recovery = self._clock() + self._config.degraded_retry_interval_s
        self._become(health)

    def _become(self, health: MemoryHealth) -> None:
        before, self._health = self._health, health
        if before is not health and self._config.on_health_changed is not None:
            self._start_callback(self._config.on_health_changed(before, health))

    def _start_callback(self, call: Awaitable[None]) -> None:
        task = asyncio.create_task(_run_callback(call))
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)

    # ------------------------------------------------------------------------------------------------------ storing

    async def persist(self, store: Any, key: str) -> None:
        """Store the conversation, and from now on each new summary at once. Errors of the store are raised."""
        self._home = (store, key)
        if not hasattr(store, "save_memory_state"):
            return
        async with self._turnstile():
            while not await self._stored(store, key):
                pass

    async def _stored(self, store: Any, key: str) -> bool:
        """Save over the version that was read. Return False if another process saved first: read and merge again."""
        version = await self._read(store, key)
        state = self._contents.dump(self._health)
        known, absorbed = KnownMemory.of(state, self._contents), len(self._absorbed)
        try:
            if version is None:
                await store.save_memory_state(key, state)
            else:
                await store.save_memory_state(key, state, if_version=version)
        except StateConflict:
            return False
        self._known = known
        del self._absorbed[:absorbed]
        return True

    async def hydrate(self, store: Any, key: str) -> None:
        """Load the stored state, unless this process stored it: then the memory is already up to date."""
        self._home = (store, key)
        async with self._turnstile():
            await self._read(store, key)
        self._start()

    async def _read(self, store: Any, key: str) -> int | None:
        """Load and merge the stored state. Return its version, or None if the store has no versions."""
        version: int | None = None
        if hasattr(store, "load_memory_version"):
            state, version = await store.load_memory_version(key)
        elif hasattr(store, "load_memory_state"):
            state = await store.load_memory_state(key)
        else:
            return None
        if state is None:
            if self._known is not NOTHING:  # the memory was erased
                self._contents, self._health = Contents(self._config), MemoryHealth.HEALTHY
                self._known, self._absorbed = NOTHING, []
        elif mark(state) != self._known.mark:
            theirs, health = Contents.load(self._config, state)
            known = KnownMemory.of(state, theirs)
            mine = rebased(OwnMemory(self._contents, self._health, self._absorbed), theirs, health, self._known)
            self._contents, self._absorbed, self._known = mine.contents, mine.absorbed, known
            self._become(mine.health)
        return version

    async def _store_again(self) -> None:
        if self._home is None:
            return
        try:
            await self.persist(*self._home)
        except Exception as error:  # noqa: BLE001  (the next persist stores it too)
            log.warning("memory_persist_failed", extra={"exception": repr(error), "key": self._home[1]})

    def _turnstile(self) -> asyncio.Lock:
        """Return the lock of the running loop. A lock belongs to one loop, and a memory may be used in several."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form."""
        return self._contents.dump(self._health)

    def from_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the stored conversation. On InvalidMemoryState the object is unchanged."""
        self._contents, health = Contents.load(self._config, state)
        self._health = when_loaded(health)
        self._failures, self._next_recovery, self._known, self._absorbed = 0, 0.0, NOTHING, []


def _summary_of(answer: object) -> str:
    summary = answer.get("summary") if isinstance(answer, Mapping) else None
    if not isinstance(summary, str):
        raise InvalidMemoryState("a summarizer must return a mapping with a string 'summary'")
    return summary


def _runs(task: asyncio.Task[None] | None) -> bool:
    return task is not None and not task.done() and not task.get_loop().is_closed()


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None and _runs(task):
        await asyncio.wait({task})


async def _run_callback(call: Awaitable[None]) -> None:
    try:
        await call
    except Exception as error:  # noqa: BLE001  (errors of callbacks have no effect)
        log.warning("memory_callback_failed", extra={"exception": repr(error)})


# ---------------------------------------------------------------------------------------------------------------- merge


@dataclass(frozen=True, slots=True)
class KnownMemory:
    """The last known stored state: its mark (a digest), its turns and its summary."""

    mark: str
    turns: frozenset[str]
    summary: str

    @classmethod
    def of(cls, state: Mapping[str, Any], contents: Contents) -> KnownMemory:
        return cls(mark(state), frozenset(name(turn) for turn in contents.everything()), contents.summary)


@dataclass(slots=True)
class OwnMemory:
    """The state of this process. ``absorbed`` are the turns summarised since the last store."""

    contents: Contents
    health: MemoryHealth
    absorbed: list[ConversationTurn]


def mark(state: Mapping[str, Any]) -> str:
    """Return a digest of the state."""
    return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()


def name(turn: ConversationTurn) -> str:
    """Return the identity of a turn, which survives storing and loading."""
    return json.dumps(dump(turn), sort_keys=True, default=str)


NOTHING = KnownMemory("", frozenset(), "")
"""For a state that was never read or written."""


def rebased(mine: OwnMemory, theirs: Contents, their_health: MemoryHealth, known: KnownMemory) -> OwnMemory:
    """Return the other state with the changes of this process since the known state.

    The summary of this process is used if the stored summary is still the one that it was made from. Otherwise the
    stored summary is used, and turns that only this process has summarised become pending again.
    """
    before = set(known.turns)
    held = {name(turn) for turn in theirs.everything()}
    own = [(name(turn), turn) for turn in mine.contents.everything()]
    health = when_loaded(their_health)
    taken = known.summary in (mine.contents.summary, theirs.summary)
    if not taken:
        theirs.pending += [turn for turn in mine.absorbed if name(turn) not in before | held]
    elif mine.contents.summary != known.summary:
        gone = before - {called for called, _ in own}
        theirs.summary = mine.contents.summary
        theirs.pending = [turn for turn in theirs.pending if name(turn) not in gone]
        theirs.backlog = [turn for turn in theirs.backlog if name(turn) not in gone]
        health = mine.health
    for called, turn in own:
        if called not in before and called not in held:
            with contextlib.suppress(MemoryBudgetExceeded):
                theirs.add(turn, health)
    return OwnMemory(theirs, health, mine.absorbed if taken else [])
