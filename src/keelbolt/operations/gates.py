"""The operations API for the gates at which turns wait, if they are in the same storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import to_json

from keelbolt.errors import InvalidParamsError, InvalidTurnGateResolution, MethodNotFoundError, TurnStorageNotFound
from keelbolt.operations.call import OpsCall
from keelbolt.tasks.engine import TaskEngine

if TYPE_CHECKING:
    from keelbolt.turns.durable.gates import DurableGates


class GateOperations:
    """The handlers of the routes for gates. They return JSON as bytes."""

    def __init__(self, engine: TaskEngine) -> None:
        self._kernel = engine.kernel
        self._tasks = engine.tasks
        self._found: DurableGates | None = None

    async def list_gates(self, call: OpsCall) -> bytes:
        state = call.text("state", "open")
        if state not in ("open", "settled"):
            raise InvalidParamsError("state must be open or settled")
        limit = call.number("limit", 100, low=1, high=500)
        gates = await self._gates()
        found = await gates.list(
            tenant=call.query.get("tenant") or None, state="open" if state == "open" else "settled", limit=limit
        )
        return to_json({"gates": [gate.to_json() for gate in found]})

    async def show_gate(self, call: OpsCall) -> bytes:
        gates = await self._gates()
        try:
            return to_json((await gates.get(call.names["gate_token"])).to_json())
        except TurnStorageNotFound:
            raise MethodNotFoundError("there is no such gate") from None

    async def settle_gate(self, call: OpsCall) -> bytes:
        """Settle the gate, and wake the task that waits at it. Return the settled gate; the first answer wins."""
        from keelbolt.turns.task_turns import wake_task  # noqa: PLC0415 - turns are loaded on first use

        gates, token, reason = await self._gates(), call.names["gate_token"], call.text("reason") or None
        try:
            match call.text("answer", "resolve"):
                case "resolve":
                    gate = await gates.resolve(token, call.body.get("value"))
                case "reject":
                    gate = await gates.reject(token, reason or "it was rejected")
                case "abort":
                    gate = await gates.abort(token, reason)
                case _:
                    raise InvalidParamsError("answer must be resolve, reject or abort")
        except TurnStorageNotFound:
            raise MethodNotFoundError("there is no such gate") from None
        except InvalidTurnGateResolution as wrong:
            raise InvalidParamsError(str(wrong)) from wrong
        woken = await wake_task(self._tasks, gate)
        return to_json({**gate.to_json(), "taskGoesOn": woken})

    async def _gates(self) -> DurableGates:
        if self._found is None:
            from keelbolt.turns.durable.gates import DurableGates  # noqa: PLC0415 - as above

            gates = DurableGates(self._kernel)
            await gates.declare()
            self._found = gates
        return self._found
