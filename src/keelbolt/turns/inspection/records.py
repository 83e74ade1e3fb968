"""The display form of a stored record, and the bytes that it refers to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from keelbolt.data.shown import plain, when
from keelbolt.errors import TurnStorageCorrupt, TurnStorageSchema
from keelbolt.kernel import Record
from keelbolt.turns.codec.kinds import Kind
from keelbolt.turns.durable.readers import MEDIA_TAG, SPOOL_TAG, Bytes
from keelbolt.turns.durable.records import Stored, read
from keelbolt.turns.durable.scope import owner_in
from keelbolt.turns.inspection.names import record_ref

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
    for name in ("attachments", "results", "content"):
        part = stored.data.get(name)
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
