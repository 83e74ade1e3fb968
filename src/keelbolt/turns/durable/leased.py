"""Turns without an agent server, each under a lease: a turn whose process died is run again by another process.

A running turn is a work item. Its process holds it under a `Lease`, and stops the turn when it can't renew the lease.
Another process with the same runner then claims the item and continues the turn after its last stored iteration. Later
writes of the first process are refused with TurnTakenOver.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pydantic_core import from_json, to_json

from keelbolt.errors import CommitInDoubt, CommitRefused, KeelboltError, TurnTakenOver
from keelbolt.kernel import Claim, Complete, Delete, Enqueue, Patch, Put, QueueTopic, new_id
from keelbolt.leases import Lease, cancelled, end_doubtful, give_back
from keelbolt.turns.context import TurnInput
from keelbolt.turns.durable.families import TURN_RUNS, TURNS, TurnAddress
from keelbolt.turns.durable.scope import TurnScope, as_scope
from keelbolt.turns.registry import Registry
from keelbolt.turns.runner import TurnResult, TurnRunner

if TYPE_CHECKING:
    from keelbolt.turns.durable.adapter import DurableStorage

MAX_ATTEMPTS = 5
BEATS_PER_LEASE = 3
POLL_SECONDS = 0.5  # the end of a lease gives no notification
STOP_SECONDS = 2.0  # a store that does not respond must not keep a process from stopping

logger = logging.getLogger("keelbolt.turns")


@dataclass(frozen=True, slots=True)
class LeftTurn:
    """A turn that a dead process left behind. ``attempt`` counts its runs, this one included."""

    scope: TurnScope
    turn_id: str
    attempt: int


Again = Callable[[LeftTurn], TurnInput | None]


@dataclass(frozen=True, slots=True)
class _Named:
    """A turn with the attributes that storage needs, before it runs."""

    id: str
    stash: Registry


class LeasedTurns:
    """Created by `DurableStorage.leased`; used as an async context manager."""

    def __init__(
        self, storage: DurableStorage, runner: TurnRunner, again: Again, *, lease_seconds: float, concurrency: int
    ) -> None:
        self._storage = storage
        self._runner = runner
        self._again = again
        self._seconds = lease_seconds
        self._concurrency = concurrency
        self._running: dict[Claim, asyncio.Task[TurnResult]] = {}
        self._taken: set[asyncio.Task[None]] = set()
        self._unfinished: list[Claim] = []  # the turn has ended, but its work item could not be removed yet
        self._lost_claims: set[Claim] = set()
        self._claiming: asyncio.Task[None] | None = None
        beats = lease_seconds / BEATS_PER_LEASE
        self._lease = Lease(storage.kernel, seconds=lease_seconds, heartbeat=beats, lost=self._lost)

    async def __aenter__(self) -> Self:
        await self._lease.start()
        self._claiming = asyncio.create_task(self._claims(), name="turn-takeover")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Stop the running turns; other processes take them over."""
        assert self._claiming is not None
        await cancelled(self._claiming)
        self._lost()
        if self._taken:
            _, late = await asyncio.wait(self._taken, timeout=STOP_SECONDS)
            for task in late:
                await cancelled(task)
        await self._finish()
        await self._lease.stop()

    async def run(self, turn_input: TurnInput) -> TurnResult:
        """Run a turn, as `TurnRunner.run_result` does. Its incoming messages are stored first.

        Raises TurnTakenOver when another process runs the turn, or when the lease could not be renewed.
        """
        turn_input = replace(turn_input, turn_id=turn_input.turn_id or new_id())
        named = self._named(turn_input)
        store = self._storage.callbacks()["store_message_callback"]
        for message in turn_input.incoming:
            await store(named, message)  # type: ignore[arg-type]  # it needs the id and the stash alone
        return await self._run(turn_input, await self._hold(named))

    def _named(self, turn_input: TurnInput) -> _Named:
        assert turn_input.turn_id is not None
        scope = {} if turn_input.scope is None else {"scope": turn_input.scope}
        return _Named(turn_input.turn_id, Registry({**(turn_input.stash or {}), **scope}))

    async def _hold(self, named: _Named) -> Claim:
        place = self._storage.place(named)
        body = to_json({"scope": asdict(self._storage.scope_of(named)), "turn_id": named.id})
        worker = self._lease.name
        try:
            receipt = await place.scope.commit(
                Put(TURN_RUNS, place.turn, body, {"owner": place.owner}),
                Enqueue(TURN_RUNS, place.turn, max_attempts=MAX_ATTEMPTS, worker=worker),
            )
        except CommitRefused as refusal:
            raise TurnTakenOver("another process runs this turn") from refusal
        except (asyncio.CancelledError, CommitInDoubt):
            self._start(self._drop(place, worker), place.turn)
            raise
        fence = receipt.fence(TURN_RUNS, place.turn)
        claim = Claim(place.scope, TURN_RUNS, place.turn, fence, 1, MAX_ATTEMPTS, "", 0)
        if worker != self._lease.name:
            raise TurnTakenOver("the lease of this process could not be renewed")
        return claim

    async def _drop(self, place: TurnAddress, worker: str) -> None:
        """Remove the work item of a turn that does not run: its commit was canceled or is in doubt."""
        while True:
            try:
                await end_doubtful(
                    self._storage.kernel,
                    place.scope,
                    TURN_RUNS,
                    place.turn,
                    worker,
                    lambda fence: (Complete(TURN_RUNS, place.turn, fence), Delete(TURN_RUNS, place.turn)),
                )
                break
            except KeelboltError:
                await asyncio.sleep(POLL_SECONDS)

    def _start(self, work: Coroutine[Any, Any, None], turn: str) -> None:
        task = asyncio.create_task(work, name=f"turn {turn}")
        self._taken.add(task)
        task.add_done_callback(self._taken.discard)

    async def _run(self, turn_input: TurnInput, claim: Claim) -> TurnResult:
        running = self._running[claim] = asyncio.ensure_future(self._runner.run_result(turn_input))
        try:
            return await running
        except asyncio.CancelledError:
            if claim in self._lost_claims:
                raise TurnTakenOver("the lease of this process could not be renewed") from None
            raise
        finally:
            del self._running[claim]
            if claim in self._lost_claims:
                self._lost_claims.discard(claim)
            else:
                self._unfinished.append(claim)
                await self._finish()

    async def _finish(self) -> None:
        """Remove the work items of ended turns; failures are retried at the next poll."""
        claims, self._unfinished = self._unfinished, []
        for claim in claims:
            try:
                await claim.scope.commit(claim.complete(), Delete(TURN_RUNS, claim.key), *await _failed(claim))
            except CommitRefused:  # another process holds it, or it was erased
                continue
            except KeelboltError as error:
                logger.warning("turn %s ended, but its end is not stored yet and is retried: %s", claim.key, error)
                self._unfinished.append(claim)

    def _lost(self) -> None:
        """Stop all turns: other processes may take them over."""
        for claim, running in self._running.items():
            self._lost_claims.add(claim)
            running.cancel()

    # ---------------------------------------------------------------------------------------------------- takeover

    async def _claims(self) -> None:
        kernel, poll = self._storage.kernel, min(POLL_SECONDS, self._seconds / 4)
        with kernel.watch(QueueTopic(TURN_RUNS)) as watch:
            while True:
                await self._finish()
                free, worker = self._concurrency - len(self._taken), self._lease.name
                claims: tuple[Claim, ...] = ()
                try:
                    if free > 0:
                        found = await kernel.claim(TURN_RUNS, worker, limit=free, lease_seconds=self._seconds)
                        claims = tuple(found)
                except Exception as error:  # noqa: BLE001 - a process that stops claiming would look healthy
                    logger.warning("turns can't be taken over until the storage responds: %s", error)
                for claim in claims:
                    lost = worker != self._lease.name  # the lease was lost meanwhile; the new one does not hold these
                    self._start(give_back(claim, every=poll) if lost else self._take(claim), claim.key)
                if not claims:
                    await watch.wait(poll)

    async def _take(self, claim: Claim) -> None:
        try:
            await self._take_over(claim)
        except (TurnTakenOver, asyncio.CancelledError):
            pass  # the lease was lost, or this process stops: another one continues
        except KeelboltError as error:
            logger.warning("turn %s could not be continued and is retried: %s", claim.key, error)
            await give_back(claim, every=POLL_SECONDS)
        except Exception:
            logger.exception("turn %s could not be continued and is given up", claim.key)
            self._unfinished.append(claim)

    async def _take_over(self, claim: Claim) -> None:
        record = await claim.scope.get(TURN_RUNS, claim.key)
        if record is None:
            self._unfinished.append(claim)
            return
        if claim.exhausted:
            logger.error("turn %s is given up: its process died %d times", claim.key, MAX_ATTEMPTS)
            await claim.scope.commit(claim.bury("its process died too often"), *await _failed(claim))
            return
        stored = from_json(record.body)
        left = LeftTurn(as_scope(stored["scope"]), stored["turn_id"], claim.attempt)
        turn_input = self._again(left)
        if turn_input is None:
            self._unfinished.append(claim)
            return
        turn_input = replace(turn_input, turn_id=left.turn_id)
        if not turn_input.incoming:
            messages = await self._storage.messages_of(self._named(turn_input))
            turn_input = replace(turn_input, incoming=[each for each in messages if each.role == "user"])
        logger.warning("turn %s continues here after its process died, attempt %d", left.turn_id, claim.attempt)
        result = await self._run(turn_input, claim)
        logger.info("turn %s ended: %s", left.turn_id, result.status)


async def _failed(claim: Claim) -> tuple[Patch, ...]:
    """Return the operation that marks a turn as failed, if it is not ended: no process continues it."""
    record = await claim.scope.get(TURNS, claim.key)
    running = record is not None and record.fields.get("state") == "running"
    return (Patch(TURNS, claim.key, {"state": "failed"}),) if running else ()
