"""Read access to stored turns for operators: tenants, threads, messages, thoughts, calls and memories.

It reads an open kernel, and writes nothing except format upgrades of an older storage. Values are shown as stored, with
descriptors instead of bytes, and long values are truncated. URLs have refs of tenants, threads and records.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from keelbolt.data.display import first_of, plain, when
from keelbolt.errors import BadCursor, BlobNotFound, TurnStorageCorrupt, TurnStorageSchema
from keelbolt.kernel import BlobReader, Kernel, Query, Record, Scalar
from keelbolt.tasks.families import TASKS
from keelbolt.tasks.record import ENDED, is_task_id
from keelbolt.turns.codec import PLURALS, Kind
from keelbolt.turns.durable.families import COLLECTIONS, FAMILIES, FORMAT_PARTITION, FORMATS, GATES, STREAMS, TURNS
from keelbolt.turns.durable.gate_records import read_gate
from keelbolt.turns.durable.readers import MEDIA_TAG, SPOOL_TAG, Bytes
from keelbolt.turns.durable.records import Stored, read, upgrade
from keelbolt.turns.durable.scope import PARTITIONS, name, owner_in, partition_of

TALK: tuple[Kind, ...] = ("message", "thought", "tool_call", "retrievable")
SHARED: tuple[Kind, ...] = ("memory", "standing_instruction")
KIND_CALLED: dict[str, Kind] = {plural.replace("_", "-"): kind for kind, plural in PLURALS.items()}
TENANTS = 1000  # tenants in one list
_EXCERPT_CHARACTERS = 200


async def open_inspection(kernel: Kernel) -> None:
    """Prepare a kernel for inspection. Turns in an older format are upgraded."""
    await kernel.declare(*FAMILIES)
    if await kernel.get(FORMAT_PARTITION, FORMATS, "format") is not None:
        await upgrade(kernel)


async def tenants(kernel: Kernel, *, after: str = "") -> list[dict[str, str]]:
    """Return the tenants that have turns here, ordered by ref."""
    found = await kernel.partitions(after=PARTITIONS + after, limit=TENANTS)
    refs = [partition.removeprefix(PARTITIONS) for partition in found if partition.startswith(PARTITIONS)]
    return [{"id": original(ref), "ref": ref} for ref in refs]


class TurnInspection:
    """The turns of one tenant. All lists are newest first."""

    def __init__(self, kernel: Kernel, tenant: str) -> None:
        self._kernel = kernel
        self._scope = kernel.scoped(tenant_partition(tenant))

    # ------------------------------------------------------------------------------------------------------ threads

    async def threads(self, *, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
        """Return threads, last used first, each with its last message."""
        query = Query(STREAMS, {"kind": "thread"}, order="at", newest_first=True)
        page = await self._scope.find(query, limit=limit, cursor=cursor)
        found = await asyncio.gather(*map(self._thread, page.records))
        return {"threads": found, "nextPageToken": page.cursor or ""}

    async def thread(self, ref: str) -> dict[str, Any] | None:
        """Return a thread with its last turns and gates, and its own memories and instructions; or None."""
        whose = owner("thread", ref)
        record = await self._scope.get(STREAMS, whose)
        if record is None:
            return None
        turns, more_turns = await self._first(TURNS, {"owner": whose}, partial(_turn, whose))
        await asyncio.gather(*map(self._check_task, turns))
        gates, more_gates = await self._first(GATES, {"owner": whose}, lambda each: read_gate(each).to_json())
        own = await self._shares(whose)
        longer = [name for name, more in (("turns", more_turns), ("gates", more_gates)) if more]
        return {**_named(record), "turns": turns, "gates": gates, **own, "more": [*longer, *own["more"]]}

    async def entries(self, ref: str, *, limit: int = 50, cursor: str | None = None) -> dict[str, Any] | None:
        """Return a thread's messages, thoughts, calls and retrievables as one list, newest first; or None."""
        whose = owner("thread", ref)
        if await self._scope.get(STREAMS, whose) is None:
            return None
        until = None if cursor is None else _seq(cursor)
        found = await asyncio.gather(*(self._talk(kind, whose, until, limit) for kind in TALK))
        last = heapq.nlargest(limit + 1, (each for one in found for each in one), key=lambda entry: entry[0])
        more = len(last) > limit
        return {
            "entries": [shown(kind, record) for _, kind, record in last[:limit]],
            "nextPageToken": str(last[limit - 1][0]) if more else "",
        }

    # ------------------------------------------------------------------------------------------------------ records

    async def records(
        self, ref: str, called: str, *, limit: int = 50, cursor: str | None = None
    ) -> dict[str, Any] | None:
        """Return a thread's records of one kind; or None."""
        return await self._records(owner("thread", ref), called, limit, cursor)

    async def record(self, ref: str, called: str, item: str) -> dict[str, Any] | None:
        """Return one record of a thread, complete unless it is very large; or None."""
        found = await self._record(ref, called, item)
        return None if found is None else shown(KIND_CALLED[called], found, large_bytes=WHOLE_BYTES)

    async def file(self, ref: str, called: str, item: str, digest: str) -> tuple[RecordFile, BlobReader] | None:
        """Return bytes that the record refers to; or None."""
        found = await self._record(ref, called, item)
        for file in files(read(KIND_CALLED[called], found)) if found is not None else ():  # raises if it is damaged
            if file.digest == digest:
                try:
                    return file, await self._scope.open_blob(digest)
                except BlobNotFound:  # purged meanwhile
                    return None
        return None

    # ------------------------------------------------------------------------------------------------------- shared

    async def shared(self) -> dict[str, Any]:
        """Return the agents and the tenant that share memories and standing instructions, with the last of these."""
        agents, more = await self._first(STREAMS, {"kind": "agent"}, lambda record: record)
        whole, _ = await self._first(STREAMS, {"kind": "tenant"}, lambda record: record)
        sharers: list[Record] = [*agents, *whole]
        found = await asyncio.gather(*(self._shares(record.key) for record in sharers))
        shared = [{**_named(record), **each} for record, each in zip(sharers, found, strict=True)]
        return {"shared": shared, "more": more}

    async def shared_records(
        self, sharer: str, called: str, *, limit: int = 50, cursor: str | None = None
    ) -> dict[str, Any] | None:
        """Return records of one kind that an agent (``agent:`` and its ref) or the ``tenant`` shares; or None."""
        kind, _, ref = sharer.partition(":")
        if kind not in ("agent", "tenant"):
            return None
        return await self._records(owner("agent", ref) if kind == "agent" else kind, called, limit, cursor)

    # ------------------------------------------------------------------------------------------------------ private

    async def _thread(self, record: Record) -> dict[str, Any]:
        query = Query(COLLECTIONS["message"], {"owner": record.key}, order="seq", newest_first=True)
        page = await self._scope.find(query, limit=1)
        last = None
        with contextlib.suppress(TurnStorageCorrupt, TurnStorageSchema):  # the thread's own page reports the problem
            last = _excerpt(read("message", page.records[0])) if page.records else None
        return {**_named(record), "last": last}

    async def _check_task(self, turn: dict[str, Any]) -> None:
        """Show a turn of a task as failed if the task is over: no process continues it."""
        task_id = turn["id"].rpartition(".")[0]
        if turn["state"] == "running" and is_task_id(task_id):
            tasks = self._kernel.scoped(original(self._scope.partition.removeprefix(PARTITIONS)))
            task = await tasks.get(TASKS, task_id)
            if task is not None and task.fields["state"] in ENDED:
                turn["state"] = "failed"

    async def _shares(self, whose: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        more = []
        for kind in SHARED:
            found[_member(kind)], longer = await first_of(self._scope, _owned(kind, whose), partial(shown, kind))
            if longer:
                more.append(_member(kind))
        return {**found, "more": more}

    async def _records(self, whose: str, called: str, limit: int, cursor: str | None) -> dict[str, Any] | None:
        kind = KIND_CALLED.get(called)
        if kind is None or await self._scope.get(STREAMS, whose) is None:
            return None
        page = await self._scope.find(_owned(kind, whose), limit=limit, cursor=cursor)
        return {"records": [shown(kind, record) for record in page.records], "nextPageToken": page.cursor or ""}

    async def _record(self, ref: str, called: str, item: str) -> Record | None:
        whose, kind = owner("thread", ref), KIND_CALLED.get(called)
        key = record_key(whose, item)
        if kind is None or key is None:
            return None
        found = await self._scope.get(COLLECTIONS[kind], key)
        return found if found is not None and found.fields.get("owner") == whose else None

    async def _talk(self, kind: Kind, whose: str, until: int | None, limit: int) -> list[tuple[int, Kind, Record]]:
        found = self._scope.scan(_owned(kind, whose, until), limit=limit + 1)
        return [(int(record.fields["seq"] or 0), kind, record) async for record in found]

    async def _first(
        self, collection: str, equal: dict[str, Scalar], show: Callable[[Record], Any]
    ) -> tuple[list[Any], bool]:
        return await first_of(self._scope, Query(collection, equal, order="at", newest_first=True), show)


def _owned(kind: Kind, whose: str, until: int | None = None) -> Query:
    return Query(COLLECTIONS[kind], {"owner": whose}, order="seq", until=until, newest_first=True)


def _named(record: Record) -> dict[str, Any]:
    """Return an owner with the time of its last write."""
    kind, ref = record.key.partition("/")[0], ref_of(record.key)
    called = {"thread": ref, "agent": f"agent:{ref}"}.get(kind, kind)
    return {"kind": kind, "id": original(ref), "ref": called, "at": when(record.fields.get("at"))}


def _turn(whose: str, record: Record) -> dict[str, Any]:
    fields = record.fields
    return {
        "id": original(record.key.removeprefix(f"{whose}/")),
        "state": fields.get("state"),
        "runs": fields.get("run"),
        "iterations": fields.get("iterations"),
        "at": when(fields.get("at")),
    }


def _excerpt(stored: Stored) -> dict[str, Any]:
    content = stored.data.get("content")
    text = content.get("text") if isinstance(content, dict) else content
    words = text if isinstance(text, str) else ""
    return {
        "role": stored.data.get("role"),
        "text": words[:_EXCERPT_CHARACTERS],
        "files": sum(1 for _ in files(stored)),
    }


def _member(kind: Kind) -> str:
    return "memories" if kind == "memory" else "instructions"


def _seq(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise BadCursor
    return int(cursor)


# -------------------------------------------------------------------------------------------------------------- records


LISTED_BYTES = 16 * 1024  # larger records are truncated in lists
WHOLE_BYTES = 1024 * 1024  # larger records are truncated even when requested alone


@dataclass(frozen=True, slots=True)
class RecordFile:
    """Bytes that a record refers to."""

    digest: str
    size: int
    media_type: str
    filename: str

    def shown(self) -> dict[str, Any]:
        return {"digest": self.digest, "size": self.size, "mediaType": self.media_type, "filename": self.filename}


def shown(kind: Kind, record: Record, *, large_bytes: int = LISTED_BYTES) -> dict[str, Any]:
    """Return the record with its turn and times; ``cut``: long values are truncated.

    A record that can't be read has a ``problem``, so that the others can still be shown.
    """
    try:
        stored = read(kind, record)
        found = [file.shown() for file in files(stored)]
    except (TurnStorageCorrupt, TurnStorageSchema) as wrong:
        return _unreadable(kind, record, str(wrong))
    large = len(record.body) > large_bytes
    return {
        "kind": kind,
        "id": stored.id,
        "ref": record_ref(stored.owner, stored.key),
        "turn": stored.turn,
        "seq": stored.seq,
        "created": when(stored.created),
        "updated": when(stored.updated),
        "size": len(record.body),
        "cut": large,
        "data": plain(stored.data, large=large),
        "files": found,
    }


def _unreadable(kind: Kind, record: Record, problem: str) -> dict[str, Any]:
    ref = record_ref(owner_in(record.key), record.key)
    known: dict[str, Any] = {"kind": kind, "id": "", "ref": ref, "turn": "", "seq": record.fields.get("seq")}
    nothing: dict[str, Any] = {
        "created": None,
        "updated": None,
        "size": len(record.body),
        "cut": False,
        "data": {},
        "files": [],
    }
    return {**known, **nothing, "problem": problem}


def files(stored: Stored) -> Iterator[RecordFile]:
    """Yield the bytes in this storage that the record refers to, in order of first use."""
    for field in ("attachments", "results", "content"):
        part = stored.data.get(field)
        for each in part if isinstance(part, list) else [part]:
            if isinstance(each, Mapping) and (file := _file(stored, each)) is not None:
                yield file


def _file(stored: Stored, part: Mapping[str, Any]) -> RecordFile | None:
    reader = part.get("reader")
    if not isinstance(reader, Mapping) or reader.get("tag") not in (MEDIA_TAG, SPOOL_TAG):
        return None
    found = Bytes.at(reader.get("locator"))
    media = part.get("media")
    if isinstance(media, Mapping):
        return RecordFile(found.sha256, found.size, str(media.get("mime_type", "")), str(media.get("filename", "")))
    return RecordFile(found.sha256, found.size, "text/plain; charset=utf-8", f"{stored.id}.txt")


# ---------------------------------------------------------------------------------------------------------------- names


_SHORTENED = re.compile(r".{100}~[0-9a-f]{64}")
_KEY_CHARACTERS = 2000


def tenant_partition(ref: str) -> str:
    """Return the partition of a tenant, from its ref or its name."""
    named = PARTITIONS + ref
    return named if _SHORTENED.fullmatch(ref) or partition_of(original(ref)) == named else partition_of(ref)


def owner(kind: str, ref: str) -> str:
    """Return the owner of this kind, from its ref or its name."""
    named = f"{kind}/{ref}"
    return named if _SHORTENED.fullmatch(named) or name(kind, original(ref)) == named else name(kind, ref)


def ref_of(owner: str) -> str:
    """Return the ref of an owner in URLs."""
    return owner.partition("/")[2]


def original(ref: str) -> str:
    """Return the name of a ref; if the name was too long, the ref."""
    return unquote(ref, errors="surrogatepass")


def record_ref(owner: str, key: str) -> str:
    """Return the ref of a record in URLs."""
    return quote(key.removeprefix(f"{owner}/"), safe="")


def record_key(owner: str, ref: str) -> str | None:
    """Return the key of a record, or None if the ref is invalid."""
    rest = unquote(ref)
    fits = rest.isascii() and rest.isprintable() and len(rest) <= _KEY_CHARACTERS
    return f"{owner}/{rest}" if fits else None
