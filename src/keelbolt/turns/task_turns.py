"""The current turn of a task, and wake-ups of tasks whose gate was settled elsewhere.

A turn that waits at a gate continues with the next message of its task. A settled gate, and one with a deadline, has an
item in the queue `WAKES`. The turn worker of any process claims it, and wakes the task by a message in the name of the
task's owner.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import asdict, dataclass

from pydantic_core import from_json, to_json

from keelbolt.auth.principal import Principal
from keelbolt.errors import (
    CommitRefused,
    KeelboltError,
    StorageUnavailable,
    TaskNotAcceptingMessagesError,
    TaskNotFoundError,
    TaskTerminalStateError,
)
from keelbolt.kernel import Claim, Kernel, Put, QueueTopic, new_id
from keelbolt.leases import Outage, give_back
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.tasks.manager import TaskManager
from keelbolt.tasks.sends import Envelope
from keelbolt.turns.durable.families import TASK_TURNS, WAKES, TurnAddress
from keelbolt.turns.durable.gate_records import StoredGate
from keelbolt.turns.durable.gates import DurableGates
from keelbolt.turns.durable.scope import under


@dataclass(frozen=True, slots=True)
class TaskTurn:
    """``through`` is the last task turn that belongs to it; ``waiting``: the next task turn answers ``token``.

    It is stored beside the turns, and only for tasks that reached a gate.
    """

    turn_id: str
    through: int
    token: str | None = None
    waiting: bool = False

    @classmethod
    async def load(cls, place: TurnAddress, task_id: str) -> TaskTurn | None:
        found = await place.scope.get(TASK_TURNS, under(place.owner, task_id))
        return None if found is None else cls(**from_json(found.body))

    async def store(self, place: TurnAddress, task_id: str) -> None:
        fields = {"owner": place.owner, "turn": under(place.owner, self.turn_id)}
        await place.scope.commit(Put(TASK_TURNS, under(place.owner, task_id), to_json(asdict(self)), fields))


# --------------------------------------------------------------------------------------------------------------- waking


WAKE = "keelbolt.gate"  # key in the message's data: the token of a settled gate
TRIES = 20
AGAIN_SECONDS = 0.25
POLL_SECONDS = 0.5  # deadlines give no notification
BATCH = 16
MAX_REASON = 1000
LEASE_SECONDS = 8.0  # waking a task takes at most TRIES × AGAIN_SECONDS

logger = logging.getLogger("keelbolt.turns")


async def wake_task(tasks: TaskManager, gate: StoredGate) -> bool:
    """Continue the task of this gate, if it has one that is not terminal; return whether it continues."""
    task_id = gate.task_id
    if not gate.settled or task_id is None:
        return False
    owner = Principal.from_json(gate.about)
    words = hashlib.sha256(gate.token.encode()).hexdigest()
    message = Message(
        message_id=f"gate-{words[:32]}", role=Role.user, parts=[Part(data={WAKE: gate.token})], task_id=task_id
    )
    for _ in range(TRIES):
        try:
            task = await tasks.load(task_id, owner)
        except TaskNotFoundError:
            return False
        try:
            who = Principal.from_json(task.record.turn.principal) if task.record.turn.principal else owner
            await tasks.send(message, Envelope(principal=who, key=message.message_id))
        except TaskTerminalStateError:
            return False
        except TaskNotAcceptingMessagesError:
            # The task is about to ask and accepts no messages before that, or it is terminal.
            if task.view.state.terminal:
                return False
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return True
    return False


class Waker:
    """Wakes the tasks of gates that were settled elsewhere or timed out; each turn worker has one."""

    def __init__(self, kernel: Kernel, gates: DurableGates, tasks: TaskManager) -> None:
        self._kernel = kernel
        self._gates = gates
        self._tasks = tasks
        self._name = f"wakes-{new_id()}"
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.create_task(self._run(), name="wakes")

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
            self._running = None
            try:
                await self._kernel.retire(self._name)
            except KeelboltError as error:
                logger.warning("the lease of the gate waker could not be released and will expire: %s", error)

    async def _run(self) -> None:
        outage = Outage("tasks of settled gates can't be woken", logger)
        with self._kernel.watch(QueueTopic(WAKES)) as watch:
            while True:
                try:
                    claims = await self._kernel.claim(WAKES, self._name, limit=BATCH, lease_seconds=LEASE_SECONDS)
                    await asyncio.gather(*map(self._wake, claims))
                    outage.ended()
                except Exception as error:  # noqa: BLE001 - a stopped waker would go unnoticed
                    outage.failed(error)
                    claims = ()
                    await asyncio.sleep(POLL_SECONDS)
                if not claims:
                    await watch.wait(POLL_SECONDS)

    async def _wake(self, claim: Claim) -> None:
        """Wake the task, or give the item back: the claims of this process would keep an item that failed."""
        try:
            await self._wake_once(claim)
        except CommitRefused:
            pass  # another process has it
        except StorageUnavailable as error:
            logger.warning("the task of the gate %s could not be woken and is retried: %s", claim.key, error)
            await give_back(claim, every=POLL_SECONDS)
        except Exception as error:
            logger.exception("the task of the gate %s could not be woken", claim.key)
            await claim.scope.commit(claim.retry(str(error)[:MAX_REASON], ready_in=POLL_SECONDS))

    async def _wake_once(self, claim: Claim) -> None:
        gate = await self._gates.due(claim)
        left = gate.seconds_left if gate is not None and not gate.settled else None
        if left is not None:  # this process's clock is behind
            await claim.scope.commit(claim.release(ready_in=max(POLL_SECONDS, left)))
            return
        if gate is not None:
            await wake_task(self._tasks, gate)
        await claim.scope.commit(claim.complete())
