"""ADK's memory on Keelbolt's storage: events of sessions, searched by words."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session

from keelbolt.google_adk.families import FORGOTTEN, MEMORIES, MEMORY_FAMILIES
from keelbolt.google_adk.service import Service
from keelbolt.kernel import Delete, Kernel, Operation, Put, Query, Scalar, Scope, new_id
from keelbolt.state.names import joined

RESULTS = 10  # of a search, as in ADK's own service
BATCH = 100

_NO_SESSION = ""


class KeelboltMemoryService(Service, BaseMemoryService):
    """Stores memories on SQLite, PostgreSQL, Redis/Valkey or in memory.

    ``storage`` is a URL, which is opened at the first call, or an open storage. A search returns the ten memories of
    the user that share the most words with the query; it reads all memories of the user.
    """

    def __init__(self, storage: str | Kernel, *, tenant: str = "default") -> None:
        super().__init__(storage, tenant, MEMORY_FAMILIES)

    async def add_session_to_memory(self, session: Session) -> None:
        entries = [_entry(event) for event in session.events if event.content and event.content.parts]
        where = (session.app_name, session.user_id, session.id)
        await self._call(partial(self._add, where=where, entries=entries, replace=True))

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,  # noqa: ARG002  (ADK's own service ignores it too)
    ) -> None:
        entries = [_entry(event) for event in events if event.content and event.content.parts]
        where = (app_name, user_id, session_id or _NO_SESSION)
        await self._call(partial(self._add, where=where, entries=entries, replace=False))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        entries = []
        for memory in memories:
            metadata = {**(custom_metadata or {}), **memory.custom_metadata}
            kept = memory.model_copy(update={"id": memory.id or new_id(), "custom_metadata": metadata})
            entries.append((_moment(memory.timestamp), kept))
        where = (app_name, user_id, _NO_SESSION)
        await self._call(partial(self._add, where=where, entries=entries, replace=False))

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        async def read(scope: Scope) -> list[bytes]:
            found = Query(MEMORIES, equal={"owner": joined(app_name, user_id)}, order="at")
            return [record.body async for record in scope.scan(found)]

        wanted = _words(query)
        scored: list[tuple[int, dict[str, Any]]] = []
        for body in await self._call(read):
            entry = json.loads(body)
            parts = (entry.get("content") or {}).get("parts") or []
            text = " ".join(part["text"] for part in parts if part.get("text"))
            if count := _shared_words(wanted, text):
                scored.append((count, entry))
        scored.sort(key=lambda pair: -pair[0])
        return SearchMemoryResponse(memories=[MemoryEntry.model_validate(entry) for _, entry in scored[:RESULTS]])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        if not memory_id:
            return
        key = joined(app_name, user_id, memory_id)

        async def forget(scope: Scope) -> None:
            found = [record async for record in scope.scan(Query(MEMORIES, equal={"event": key}))]
            if found:
                await scope.commit(Put(FORGOTTEN, key, b""), *[Delete(MEMORIES, record.key) for record in found])

        await self._call(forget)

    async def _add(
        self,
        scope: Scope,
        where: tuple[str, str, str],
        entries: Sequence[tuple[float, MemoryEntry]],
        *,
        replace: bool,
    ) -> None:
        app, user, _ = where
        owner, group = joined(app, user), joined(*where)
        known = {record.key async for record in scope.scan(Query(MEMORIES, equal={"session": group}))}
        keys = {joined(*where, str(entry.id)): (at, entry) for at, entry in entries}
        events = [joined(app, user, str(entry.id)) for _, entry in keys.values()]
        forgotten = await scope.get_many(FORGOTTEN, events)
        operations: list[Operation] = []
        for (key, (at, entry)), event, gone in zip(keys.items(), events, forgotten, strict=True):
            if gone is None and key not in known:
                body = entry.model_dump_json(exclude_none=True).encode()
                fields: dict[str, Scalar] = {"owner": owner, "session": group, "event": event, "at": at}
                operations.append(Put(MEMORIES, key, body, fields))
        if replace:
            operations.extend(Delete(MEMORIES, key) for key in known - keys.keys())
        for start in range(0, len(operations), BATCH):
            await scope.commit(*operations[start : start + BATCH])


def _entry(event: Event) -> tuple[float, MemoryEntry]:
    assert event.content is not None
    moment = datetime.fromtimestamp(event.timestamp, UTC).isoformat()
    entry = MemoryEntry(id=event.id, content=event.content, author=event.author, timestamp=moment)
    return event.timestamp, entry


def _moment(text: str | None) -> float:
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return datetime.now(UTC).timestamp()


def _words(text: str) -> set[str]:
    return {word.lower() for word in re.findall(r"\w+", unicodedata.normalize("NFC", text))}


def _shared_words(wanted: set[str], text: str) -> int:
    """Return how many of these words are in the text. Latin words inside a text without spaces count, too."""
    words = _words(text)
    for word in list(words):
        if not word.isascii():
            words.update("".join(group) for _, group in groupby(word, _is_latin))
    whole = unicodedata.normalize("NFC", text).lower()
    return sum(word in words or (not word.isascii() and word in whole) for word in wanted) if words else 0


def _is_latin(letter: str) -> bool:
    if letter.isascii():
        return letter.isalnum() or letter == "_"
    return unicodedata.name(letter, "").startswith("LATIN")
