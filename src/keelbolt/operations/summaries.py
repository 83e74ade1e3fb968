"""Tasks in lists: what stands in their records, how each began, and a search through them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from keelbolt.errors import LogTrimmed
from keelbolt.observability.masking import MASK, SECRET_NAME
from keelbolt.protocol.types import timestamp
from keelbolt.storage import Scope
from keelbolt.tasks.families import EVENTS
from keelbolt.tasks.listing import RecordPage, list_records, record_json
from keelbolt.tasks.queries import ListTasksQuery
from keelbolt.tasks.record import REQUEST_METADATA, TaskRecord
from keelbolt.tasks.store import TaskKey, TaskStore

SAID_CHARACTERS = 200
OPENING_ENTRIES = 10  # the user's first message is among the first; a fork may begin with what the agent said
KNOWN = 4096  # beginnings that are remembered: they never change
READS = 16  # logs that are read at once: what a task began with may be as large as a request
LOOKS = 20  # pages that one search reads; it is continued like any list


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for beyond what A2A lists: words, the skill that was asked for, and until when."""

    text: str = ""
    skill: str = ""
    until: str | None = None

    def found(self, record: TaskRecord, said: str) -> bool:
        if self.skill and skill_of(record) != self.skill:
            return False
        words = self.text.casefold()
        status = record.status.decode(errors="replace")
        return not words or any(words in each.casefold() for each in (record.task_id, record.context_id, said, status))


class Summaries:
    """Writes them."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._known: dict[TaskKey, str] = {}
        self._reading = asyncio.Semaphore(READS)

    async def json(self, scope: Scope, record: TaskRecord) -> bytes:
        about: dict[str, Any] = {
            "partition": scope.partition,
            "created": timestamp(record.created),
            "turn": record.turn.number,
            "said": await self._said(scope, record.task_id),
        }
        if skill := skill_of(record):
            about["skill"] = skill
        return record_json(record)[:-1] + b"," + to_json(about)[1:]

    async def search(self, scope: Scope, query: ListTasksQuery, wanted: Wanted) -> RecordPage:
        """A page of those that match. It looks at so many and no more: then it may be short, and still go on."""
        if not wanted.text and not wanted.skill:
            return await list_records(scope, query, until=wanted.until)
        found: list[TaskRecord] = []
        token, total = query.page_token, None
        for _ in range(LOOKS):
            rest = {"page_size": query.page_size - len(found), "page_token": token}
            page = await list_records(scope, query.model_copy(update=rest), until=wanted.until)
            total = total or page.total
            said = await asyncio.gather(*(self._said(scope, record.task_id) for record in page.records))
            found += [record for record, words in zip(page.records, said, strict=True) if wanted.found(record, words)]
            token = page.next_page_token
            if not token or len(found) == query.page_size:
                break
        assert total is not None
        return RecordPage(tuple(found), token or "", query.page_size, total)

    async def _said(self, scope: Scope, task_id: str) -> str:
        """How the task began: the first words of its user."""
        key = (scope, task_id)
        if key not in self._known:
            async with self._reading:
                said = await self._first_words(scope, task_id)
            if len(self._known) >= KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[key] = said
        return self._known[key]

    async def _first_words(self, scope: Scope, task_id: str) -> str:
        try:
            page = await scope.read_log(EVENTS, task_id, after=0, limit=OPENING_ENTRIES)
        except LogTrimmed:
            return ""
        for entry in page.entries:
            if entry.kind == "message" and (message := from_json(entry.data)).get("role") == "ROLE_USER":
                return _words(message)
        return ""


def skill_of(record: TaskRecord) -> str:
    """The skill that the task is for, as agents with many note it, or the request named it: ``metadata.skillId``."""
    for metadata in (record.metadata, record.turn.request.get(REQUEST_METADATA)):
        skill = metadata.get("skillId") if isinstance(metadata, Mapping) else None
        if isinstance(skill, str):
            return skill
    return ""


def _words(message: Mapping[str, Any]) -> str:
    """What the message says in short: its text, or what else it holds."""
    parts = message.get("parts", [])
    text = " ".join(part["text"] for part in parts if isinstance(part.get("text"), str)).strip()
    if not text:
        text = ", ".join(_part(part) for part in parts)
    return text[:SAID_CHARACTERS]


def _part(part: Mapping[str, Any]) -> str:
    if "data" in part:
        return to_json(_masked(part["data"])).decode()[:SAID_CHARACTERS]
    return str(part.get("filename") or part.get("url") or part.get("mediaType") or "a file")


def _masked(value: Any, name: str = "") -> Any:
    """The value without what its names call a secret: a list is looked at by many."""
    if isinstance(value, dict):
        return {key: _masked(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, name) for each in value]
    return MASK if isinstance(value, str) and SECRET_NAME.search(name) else value
