"""The operations API for turns that agents keep in the same storage: threads and their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keelbolt.errors import InvalidName, InvalidParamsError, MethodNotFoundError
from keelbolt.kernel import BlobReader
from keelbolt.operations.call import OpsCall
from keelbolt.operations.shapes import json_found, json_of, page_asked
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.files import TaskFile

if TYPE_CHECKING:
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
