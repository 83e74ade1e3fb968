"""The text of tasks for search: requests and answers, limited in length, without case and accents.

The text of a task is read from its log at its first search. The text of an ended task can't change, so it is kept in a
record, which is erased with the task. Sending costs nothing, and later searches read one small record per task. A
search compares substrings and needs no word boundaries, so it also works for languages that do not write them.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import from_json, to_json

from keelbolt.errors import LogTrimmed
from keelbolt.kernel import Operation, Put, Receipt, Record, Scope, Version
from keelbolt.observability.logs import MASK, SECRET_NAME
from keelbolt.tasks.families import EVENTS, TASKS, TEXTS
from keelbolt.tasks.record import ENDED
from keelbolt.tasks.stored_tasks import StoredTasks

ASKED_CHARACTERS = 4_000
ANSWERED_CHARACTERS = 4_000
LOG_ENTRIES = 500  # limits of the log that is read per task
LOG_BYTES = 256 * 1024
READS = 64  # concurrent reads of logs
WRITES = 50  # texts per commit
KINDS = ("message", "status", "said", "artifact")


def folded(text: str) -> str:
    """Return the text for comparison: without case, accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKD", text)
    return "".join(one for one in text if not unicodedata.combining(one)).casefold()


class Texts:
    """Finds the text of tasks."""

    def __init__(self, store: StoredTasks) -> None:
        self._store = store
        self._reading = asyncio.Semaphore(READS)

    async def of(self, scope: Scope, records: Sequence[Record]) -> list[str]:
        """Return the text of these tasks, folded."""
        kept = await scope.get_many(TEXTS, [record.key for record in records])
        missing = [record for record, text in zip(records, kept, strict=True) if text is None]
        read = await asyncio.gather(*(self._read(scope, record) for record in missing))
        self._keep(scope, [pair for pair in zip(missing, read, strict=True) if pair[0].fields["state"] in ENDED])
        found = iter(read)
        return [next(found) if text is None else text.body.decode() for text in kept]

    def _keep(self, scope: Scope, texts: Sequence[tuple[Record, str]]) -> None:
        """Start to write the texts of ended tasks. The search does not wait for the writes."""
        for first in range(0, len(texts), WRITES):
            operations: list[Operation] = []
            for record, text in texts[first : first + WRITES]:
                operations.append(Version(TASKS, record.key, record.version))  # the task may be erased meanwhile
                operations.append(Put(TEXTS, record.key, text.encode(errors="replace")))
            asyncio.ensure_future(scope.commit(*operations)).add_done_callback(_ignore)

    async def _read(self, scope: Scope, record: Record) -> str:
        async with self._reading:
            try:
                page = await scope.read_log(EVENTS, record.key, after=0, limit=LOG_ENTRIES, max_bytes=LOG_BYTES)
                bodies = [from_json(entry.data) for entry in page.entries if entry.kind in KINDS]
            except LogTrimmed:  # only its snapshot is left
                task = await self._store.find(scope, record.key)
                bodies = [] if task is None else [from_json(await self._store.task_json(task))]
            return folded(_words(bodies))


def _ignore(written: asyncio.Future[Receipt]) -> None:
    """Ignore a refused or failed write: the next search repeats it."""
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
    """Yield the lists of parts in a message, status, artifact or task, and whether the user wrote them."""
    if isinstance(body, dict):
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
    """Return the value with secrets masked, which are recognised by their names."""
    if isinstance(value, dict):
        return {key: without_secrets(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [without_secrets(each, name) for each in value]
    return MASK if isinstance(value, str) and SECRET_NAME.search(name) else value
