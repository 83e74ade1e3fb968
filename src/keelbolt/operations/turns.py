"""The operations API for turns that agents keep in the same storage: threads, their records, and gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import to_json

from keelbolt.errors import (
    InvalidName,
    InvalidParamsError,
    InvalidTurnGateResolution,
    MethodNotFoundError,
    TurnStorageNotFound,
)
from keelbolt.kernel import BlobReader
from keelbolt.operations.call import OpsCall, json_found, json_of, page_asked
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.files import TaskFile

if TYPE_CHECKING:
    from keelbolt.turns.durable.gates import DurableGates
    from keelbolt.turns.inspection import TurnInspection


class TurnOperations:
    """The handlers of the routes for turns, for operators: turns belong to no caller of this server."""

    def __init__(self, engine: TaskEngine) -> None:
        self._kernel = engine.kernel
        self._ready = False

    async def turn_tenants(self, call: OpsCall) -> bytes:
        from keelbolt.turns.inspection import tenants  # noqa: PLC0415 - turns are loaded on first use

        try:
            return json_of({"tenants": await tenants(self._kernel, after=call.text("after"))})
        except InvalidName:
            raise InvalidParamsError("after must be the ref of a tenant") from None

    async def turn_threads(self, call: OpsCall) -> bytes:
        return json_of(await (await self._turns(call)).threads(**page_asked(call)))

    async def turn_thread(self, call: OpsCall) -> bytes:
        turns = await self._turns(call)
        return json_found(await turns.thread(call.names["thread_ref"]), "thread")

    async def turn_entries(self, call: OpsCall) -> bytes:
        turns = await self._turns(call)
        return json_found(await turns.entries(call.names["thread_ref"], **page_asked(call)), "thread")

    async def turn_records(self, call: OpsCall) -> bytes:
        turns = await self._turns(call)
        found = await turns.records(call.names["thread_ref"], call.names["record_kind"], **page_asked(call))
        return json_found(found, "list of a thread")

    async def turn_record(self, call: OpsCall) -> bytes:
        return json_found(await (await self._turns(call)).record(*_item(call)), "record")

    async def turn_file(self, call: OpsCall) -> tuple[TaskFile, BlobReader]:
        found = await (await self._turns(call)).file(*_item(call), call.names["blob_digest"])
        if found is None:
            raise MethodNotFoundError("there is no such file")
        file, reader = found
        return TaskFile("", file.digest, file.size, file.media_type, file.filename), reader

    async def turn_shared(self, call: OpsCall) -> bytes:
        return json_of(await (await self._turns(call)).shared())

    async def turn_shared_records(self, call: OpsCall) -> bytes:
        turns = await self._turns(call)
        found = await turns.shared_records(call.names["sharer_ref"], call.names["record_kind"], **page_asked(call))
        return json_found(found, "list that is shared")

    async def _turns(self, call: OpsCall) -> TurnInspection:
        from keelbolt.turns.inspection import TurnInspection, open_inspection  # noqa: PLC0415 - as above

        if not self._ready:  # once, on first use
            await open_inspection(self._kernel)
            self._ready = True
        return TurnInspection(self._kernel, call.text("tenant") or call.principal.partition)


def _item(call: OpsCall) -> tuple[str, str, str]:
    return call.names["thread_ref"], call.names["record_kind"], call.names["record_ref"]


# ---------------------------------------------------------------------------------------------------------------- gates


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
