"""A gate that was settled elsewhere wakes the task that waits at it: a message in the name of its owner."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping

from keelbolt.auth.principal import Principal
from keelbolt.errors import TaskNotAcceptingMessagesError, TaskNotFoundError, TaskTerminalStateError
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.tasks.envelope import Envelope
from keelbolt.tasks.manager import TaskManager
from keelbolt.turns.durable.gate_records import StoredGate

WAKE = "keelbolt.gate"  # in the data of the message: the token of a gate that is settled
TRIES = 20
AGAIN_SECONDS = 0.25


async def wake_task(tasks: TaskManager, gate: StoredGate) -> bool:
    """Let the task of this gate go on, if it has one and it is not over; answers whether it does."""
    about = gate.about
    if not gate.settled or not isinstance(about, Mapping) or "taskId" not in about:
        return False
    task_id = about["taskId"]
    owner = Principal.from_json(about)
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
            # It is about to ask, and takes no messages before that; or it is over.
            if task.view.state.terminal:
                return False
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return True
    return False
