"""The operations API for state that agents keep in the same storage: sessions, traces, memory, artifacts.

It belongs to no caller of this server, so it is only for operators. ``tenant`` is that of the state store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from keelbolt.data.display import plain
from keelbolt.errors import InvalidName, InvalidParamsError, MethodNotFoundError
from keelbolt.kernel import BlobReader, Scope
from keelbolt.operations.call import OpsCall, entries_asked, json_found, json_of, page_asked
from keelbolt.state.artifacts.record import ArtifactRecord
from keelbolt.state.families import FAMILIES, partition_of
from keelbolt.state.inspection import (
    ArtifactInspection,
    Lists,
    SessionInspection,
    TraceInspection,
    history,
    original,
    tenants,
)
from keelbolt.state.names import name
from keelbolt.state.planner_state import WaitingPause, cancel_pause, waiting_pause, waiting_pauses
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.files import TaskFile


class StateOperations:
    """The handlers of the routes for state. They return JSON as bytes."""

    def __init__(self, engine: TaskEngine) -> None:
        self._kernel = engine.kernel
        self._declared = False

    # ------------------------------------------------------------------------------------------------------- lists

    async def state_tenants(self, call: OpsCall) -> bytes:
        try:
            return json_of({"tenants": await tenants(self._kernel, after=call.text("after"))})
        except InvalidName:
            raise InvalidParamsError("after must be a tenant of this list") from None

    async def state_sessions(self, call: OpsCall) -> bytes:
        return json_of(await Lists(await self._scope(call)).sessions(**page_asked(call)))

    async def state_traces(self, call: OpsCall) -> bytes:
        return json_of(await Lists(await self._scope(call)).traces(**page_asked(call)))

    async def state_memories(self, call: OpsCall) -> bytes:
        return json_of(await Lists(await self._scope(call)).memories(**page_asked(call)))

    async def state_pauses(self, call: OpsCall) -> bytes:
        found, cursor = await waiting_pauses(await self._scope(call), **page_asked(call))
        return json_of({"pauses": [_pause(pause) for pause in found], "nextPageToken": cursor or ""})

    async def state_artifacts(self, call: OpsCall) -> bytes:
        found = ArtifactInspection(await self._scope(call))
        return json_of(await found.list(session=call.query.get("session"), **page_asked(call)))

    # --------------------------------------------------------------------------------------------------------- one

    async def state_session(self, call: OpsCall) -> bytes:
        found = SessionInspection(await self._scope(call))
        return json_found(await found.show(call.names["session_id"]), "session")

    async def state_task(self, call: OpsCall) -> bytes:
        found = SessionInspection(await self._scope(call))
        return json_found(await found.task(call.names["session_id"], call.names["state_task_id"]), "task")

    async def state_trace(self, call: OpsCall) -> bytes:
        found = TraceInspection(await self._scope(call))
        return json_found(await found.show(call.names["trace_id"], session=call.query.get("session")), "trace")

    async def state_memory(self, call: OpsCall) -> bytes:
        return json_found(await Lists(await self._scope(call)).memory(call.names["memory_key"]), "memory")

    async def state_pause(self, call: OpsCall) -> bytes:
        found = await waiting_pause(await self._scope(call), token=original(call.names["pause_token"]))
        return json_found(None if found is None else {**_pause(found), "payload": plain(found.payload)}, "pause")

    async def cancel_state_pause(self, call: OpsCall) -> bytes:
        token = original(call.names["pause_token"])
        if not await cancel_pause(await self._scope(call), token=token):
            raise MethodNotFoundError("there is no such pause")
        return json_of({"cancelled": token})

    async def state_artifact(self, call: OpsCall) -> bytes:
        found = ArtifactInspection(await self._scope(call))
        return json_found(await found.show(call.names["artifact_id"]), "artifact")

    async def state_artifact_content(self, call: OpsCall) -> tuple[TaskFile, BlobReader]:
        found = await ArtifactInspection(await self._scope(call)).open(call.names["artifact_id"])
        if found is None:
            raise MethodNotFoundError("there is no such artifact")
        kept, reader = ArtifactRecord.of(found[0]), found[1]
        return TaskFile("", kept.sha256, kept.size, kept.mime_type, kept.filename), reader

    # -------------------------------------------------------------------------------------------------------- logs

    async def state_updates(self, call: OpsCall) -> bytes:
        found = SessionInspection(await self._scope(call))
        return json_of(await found.updates(call.names["session_id"], **entries_asked(call)))

    async def state_steering(self, call: OpsCall) -> bytes:
        found = SessionInspection(await self._scope(call))
        return json_of(await found.steering(call.names["session_id"], **entries_asked(call)))

    async def state_events(self, call: OpsCall) -> bytes:
        found = TraceInspection(await self._scope(call))
        return json_of(await found.events(call.names["trace_id"], **entries_asked(call)))

    async def state_history(self, call: OpsCall) -> AsyncGenerator[tuple[bytes, int | None], None]:
        last = call.number("last", 0, low=0, high=2**53) if "last" in call.query else None
        asked = {name: call.query.get(name) == "true" for name in ("whole", "follow")}
        lines = history(await self._scope(call), call.names["trace_id"], last=last, **asked)
        yield b"", None
        async with aclosing(lines):
            async for line in lines:
                yield json_of({"line": line}), None

    async def state_planner_events(self, call: OpsCall) -> bytes:
        found = TraceInspection(await self._scope(call))
        return json_of(await found.planner_events(call.names["trace_id"], **entries_asked(call)))

    async def _scope(self, call: OpsCall) -> Scope:
        if not self._declared:  # once, on first use
            await self._kernel.declare(*FAMILIES)
            self._declared = True
        return self._kernel.scoped(partition_of(call.text("tenant") or "default"))


def _pause(pause: WaitingPause) -> dict[str, Any]:
    reason = pause.payload.get("reason")
    return {
        "token": pause.token,
        "ref": name(pause.token),
        "reason": reason if isinstance(reason, str) else None,
        "saved": pause.saved_at.isoformat() if pause.saved_at is not None else None,
        "expires": pause.expires_at.isoformat() if pause.expires_at is not None else None,
        "leased": pause.leased,
    }
