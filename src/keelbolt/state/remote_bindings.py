"""Bindings of traces to remote tasks, and the conversations that continue in them."""

from __future__ import annotations

import json
from typing import Any

from keelbolt.errors import CommitRefused, StateNotSaved
from keelbolt.kernel import Put, Query, Replace, Scope
from keelbolt.kernel.records import Fields
from keelbolt.state.codec import decode, dump_fields
from keelbolt.state.engine.saving import Saved
from keelbolt.state.families import BINDINGS
from keelbolt.state.names import digest, joined, name
from keelbolt.state.store_context import StoreContext, wanted


class Bindings:
    """``save_remote_binding``, ``find_binding``, ``list_bindings`` and ``mark_binding_terminal``."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk

    def save(self, binding: Any) -> Saved:
        """Save a binding; it replaces an older one of the same trace, context and task."""
        wanted(binding, "RemoteBinding", "trace_id", "context_id", "task_id", "agent_url", "__dataclass_fields__")
        fields = dump_fields(binding)
        body = self._desk.encode(fields)
        key = joined(binding.trace_id, binding.context_id, binding.task_id)
        kept = Put(BINDINGS, key, body, binding_fields(fields, self._desk.tick()))
        lives, notes = self._desk.note(session_id=fields.get("router_session_id"), trace_id=binding.trace_id)
        trace_id = binding.trace_id
        return self._desk.save("save_remote_binding", (kept, *notes), len(body), trace_id=trace_id, lives=lives)

    async def find(self, session: str, agent_url: str, skill: str, tenant: str | None, user: str | None) -> Any | None:
        """Return the last saved open binding of this conversation, or None."""
        mark = _conversation(session, agent_url, skill, tenant, user)
        query = Query(BINDINGS, {"conversation": mark}, order="saved", newest_first=True)

        async def read(scope: Scope) -> Any | None:
            page = await scope.find(query, limit=1)
            return decode(page.records[0].body) if page.records else None

        stored = await self._desk.load("find_binding", read)
        return self._desk.types.make("RemoteBinding", stored) if stored is not None else None

    async def list(self, session: str) -> list[Any]:
        """Return the bindings of a session in the order in which they were saved."""
        query = Query(BINDINGS, {"session": name(session)}, order="saved")

        async def read(scope: Scope) -> list[Any]:
            return [decode(record.body) async for record in scope.scan(query)]

        stored = await self._desk.load("list_bindings", read)
        return [self._desk.types.make("RemoteBinding", fields) for fields in stored]

    async def end(self, trace_id: str, context_id: str | None, task_id: str) -> None:
        """Mark the binding as terminal, if it exists: it accepts no further turn."""
        key = joined(trace_id, context_id, task_id)

        async def write(scope: Scope) -> None:
            while (record := await scope.get(BINDINGS, key)) is not None:
                fields = {**decode(record.body), "is_terminal": True}
                body = self._desk.encode(fields)
                try:
                    await scope.commit(
                        Replace(BINDINGS, key, record.version, body, binding_fields(fields, self._desk.tick()))
                    )
                except CommitRefused:  # saved by another process meanwhile
                    continue
                return

        try:
            await self._desk.load("mark_binding_terminal", write, trace_id=trace_id, changes=True)
        except StateNotSaved:
            if self._desk.policy == "strict":
                raise


def binding_fields(stored: dict[str, Any], saved: int) -> Fields:
    """Return the indexed fields of a binding; ``saved`` is the time in microseconds since 1970."""
    session, skill = stored.get("router_session_id"), stored.get("remote_skill")
    fields: dict[str, Any] = {"trace": name(stored["trace_id"]), "saved": saved}
    if session is not None:
        fields["session"] = name(session)
    if session is not None and skill is not None and not stored.get("is_terminal"):
        fields["conversation"] = _conversation(
            session, stored["agent_url"], skill, stored.get("tenant_id"), stored.get("user_id")
        )
    return fields


def _conversation(*ids: str | None) -> str:
    return digest(json.dumps(ids).encode())
