"""The words of tasks, for searching: what was asked and what was answered, bounded, without case and accents.

The words of a task are read from its log at its first search. Those of a task that has ended can't change any more, so
they are kept in a record beside it, which is erased with it. Sending costs nothing, and later searches read one small
record per task. A search compares substrings and needs no word boundaries, so it also finds words of languages that
write none.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import from_json, to_json

from keelbolt.errors import LogTrimmed
from keelbolt.observability.masking import MASK, SECRET_NAME
from keelbolt.storage import Put, Receipt, Record, Scope, Version
from keelbolt.tasks.families import EVENTS, TASKS, TEXTS
from keelbolt.tasks.record import ENDED
from keelbolt.tasks.store import TaskStore

ASKED_CHARACTERS = 4_000
ANSWERED_CHARACTERS = 4_000
LOG_ENTRIES = 500  # of a task that are read, and so many bytes
LOG_BYTES = 256 * 1024
READS = 16  # logs that are read at once
KINDS = ("message", "status", "said", "artifact")


def folded(text: str) -> str:
    """The text as it is compared: without case, accents and forms of the same character."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKD", text)
    return "".join(one for one in text if not unicodedata.combining(one)).casefold()


class Texts:
    """Finds the words of tasks."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._reading = asyncio.Semaphore(READS)

    async def of(self, scope: Scope, records: Sequence[Record]) -> list[str]:
        """The words of these tasks, folded."""
        kept = await scope.get_many(TEXTS, [record.key for record in records])
        missing = [record for record, text in zip(records, kept, strict=True) if text is None]
        read = iter(await asyncio.gather(*(self._read(scope, record) for record in missing)))
        return [next(read) if text is None else text.body.decode() for text in kept]

    async def _read(self, scope: Scope, record: Record) -> str:
        async with self._reading:
            try:
                page = await scope.read_log(EVENTS, record.key, after=0, limit=LOG_ENTRIES, max_bytes=LOG_BYTES)
                bodies = [from_json(entry.data) for entry in page.entries if entry.kind in KINDS]
            except LogTrimmed:  # its snapshot is left
                task = await self._store.find(scope, record.key)
                bodies = [] if task is None else [from_json(await self._store.task_json(task))]
            text = folded(_words(bodies))
            if record.fields["state"] in ENDED:
                same = Version(TASKS, record.key, record.version)  # it may be erased meanwhile
                put = scope.commit(same, Put(TEXTS, record.key, text.encode(errors="replace")))
                asyncio.ensure_future(put).add_done_callback(_ignore)  # the search does not wait for it
        return text


def _ignore(written: asyncio.Future[Receipt]) -> None:
    """A refused or failed write is repeated by the next search."""
    if not written.cancelled():
        written.exception()


def _words(bodies: Sequence[Any]) -> str:
    asked: list[str] = []
    answered: list[str] = []
    for body in bodies:
        for parts, user in _parts(body, user=False):
            (asked if user else answered).extend(map(_text, parts))
    return f"{' '.join(asked)[:ASKED_CHARACTERS]}\n{' '.join(answered)[:ANSWERED_CHARACTERS]}"


def _parts(body: Any, *, user: bool) -> Iterator[tuple[list[Any], bool]]:
    """The lists of parts in a message, status, artifact or task, and whether the user wrote them."""
    if isinstance(body, Mapping):
        user = user or body.get("role") == "ROLE_USER"
        if isinstance(body.get("parts"), list):
            yield body["parts"], user
            return
        body = list(body.values())
    if isinstance(body, list):
        for each in body:
            yield from _parts(each, user=user)


def _text(part: Mapping[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    if "data" in part:
        return to_json(without_secrets(part["data"])).decode()
    return str(part.get("filename") or part.get("url") or part.get("mediaType") or "")


def without_secrets(value: Any, name: str = "") -> Any:
    """The value with a mask in the place of what its names call a secret."""
    if isinstance(value, dict):
        return {key: without_secrets(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [without_secrets(each, name) for each in value]
    return MASK if isinstance(value, str) and SECRET_NAME.search(name) else value
