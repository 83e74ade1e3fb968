"""Encodes operations as the words of a commit call, and fields as tokens, and decodes replies into outcomes."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

from keelbolt.errors import CommitRefused, StorageCorrupt
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation, Outcome
from keelbolt.kernel.hints import LogTopic, QueueTopic, Topic
from keelbolt.kernel.judge import MICROSECONDS
from keelbolt.kernel.keys import LONG_BYTES, encode, encode_one, encode_text
from keelbolt.kernel.logs import Append, Drop, Head, Start, Trim
from keelbolt.kernel.records import (
    NO_FIELDS,
    Absent,
    Delete,
    FieldIn,
    FieldNotIn,
    Fields,
    Insert,
    Patch,
    Present,
    Put,
    Record,
    Replace,
    Restore,
    Scalar,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Complete, Enqueue, Fence, Release, Remove, Retry

Words = list[bytes]

RECORD_WRITES = (Insert, Restore, Put, Replace, Patch, Delete, Take)


def micros(seconds: float) -> bytes:
    return b"%d" % int(seconds * MICROSECONDS)


def key_hash(key: bytes) -> bytes:
    """Return the hash of a long key, which an index entry can't hold; empty for all others."""
    return hashlib.sha256(key).digest() if len(key) > LONG_BYTES else b""


def checksum(data: bytes) -> bytes:
    return b"%08x" % crc32(data)


def words_of(operation: Operation, lease: Callable[[str], int]) -> Words:
    return _WORDS[type(operation)](operation, lease)


# ------------------------------------------------------------------------------------------------ one per operation


def _content(operation: Insert | Restore | Put | Replace) -> Words:
    key = operation.key.encode()
    seconds = operation.expires_in
    return [
        operation.collection.encode(),
        key,
        key_hash(key),
        pack_fields(operation.fields),
        operation.body,
        checksum(operation.body),
        b"" if seconds is None else micros(seconds),
    ]


def _record(operation: Version | Absent | Present | Delete | Take | FieldIn | FieldNotIn | Patch) -> Words:
    return [operation.collection.encode(), operation.key.encode()]


def _version(operation: Delete | Patch | Version) -> bytes:
    return b"" if operation.version is None else b"%d" % operation.version


def _values(code: bytes, operation: FieldIn | FieldNotIn) -> Words:
    given = [encode((value,)) for value in operation.values]
    return [code, *_record(operation), operation.field.encode(), b"%d" % len(given), *given]


def _patch(operation: Patch) -> Words:
    fields = field_pieces(operation.fields)
    return [b"patch", *_record(operation), _version(operation), b"%d" % (len(fields) // 2), *fields]


def _append(operation: Append) -> Words:
    words = [b"append", operation.log.encode(), operation.stream.encode(), b"%d" % len(operation.entries)]
    for draft in operation.entries:
        dedupe = b"" if draft.dedupe is None else b"=" + draft.dedupe.encode()
        words += (draft.kind.encode(), draft.data, entry_checksum(draft.kind, draft.data), dedupe)
    return words


def entry_checksum(kind: str, data: bytes) -> bytes:
    return b"%08x" % crc32(data, crc32(kind.encode()))


def unpacked(page: bytes) -> Iterator[tuple[int, int, str, bytes, bytes, bytes]]:
    """Return (seq, at, kind, data, dedupe key, checksum) of each entry of a page, in the format of logs.lua."""
    place = 0
    while place < len(page):
        line = page.index(b"\n", place)
        seq, at, crc, kind_size, size, dedupe_size = page[place:line].split(b" ")
        middle = line + 1 + int(kind_size)
        end = middle + int(size)
        place = end + int(dedupe_size)
        yield int(seq), int(at), page[line + 1 : middle].decode(), page[middle:end], page[end:place], crc


def _stream(operation: Head | Start | Trim | Drop) -> Words:
    return [operation.log.encode(), operation.stream.encode()]


def _item(operation: Enqueue | Complete | Release | Retry | Bury | Remove | Fence) -> Words:
    return [operation.queue.encode(), operation.key.encode()]


def _fenced(operation: Complete | Release | Retry | Bury | Fence) -> Words:
    return [*_item(operation), b"%d" % operation.fence]


def _enqueue(operation: Enqueue, lease: Callable[[str], int]) -> Words:
    worker = operation.worker
    return [
        b"enqueue",
        *_item(operation),
        operation.lane.encode(),
        b"%d" % operation.priority,
        micros(operation.ready_in),
        b"%d" % operation.max_attempts,
        b"" if worker is None else worker.encode(),
        b"0" if worker is None else b"%d" % lease(worker),
    ]


def _reason(reason: str) -> bytes:
    return b"=" + reason.encode()


_WORDS: dict[type[Operation], Callable[[Any, Callable[[str], int]], Words]] = {
    Version: lambda o, _: [b"version", *_record(o), _version(o)],
    Absent: lambda o, _: [b"absent", *_record(o)],
    Present: lambda o, _: [b"present", *_record(o)],
    FieldIn: lambda o, _: _values(b"in", o),
    FieldNotIn: lambda o, _: _values(b"notin", o),
    Insert: lambda o, _: [b"insert", *_content(o)],
    Restore: lambda o, _: [b"restore", b"%d" % o.version, *_content(o)],
    Put: lambda o, _: [b"put", *_content(o)],
    Replace: lambda o, _: [b"replace", b"%d" % o.version, *_content(o)],
    Patch: lambda o, _: _patch(o),
    Delete: lambda o, _: [b"delete", *_record(o), _version(o)],
    Take: lambda o, _: [b"take", *_record(o)],
    Head: lambda o, _: [b"head", *_stream(o), b"%d" % o.seq],
    Append: lambda o, _: _append(o),
    Start: lambda o, _: [b"start", *_stream(o), b"%d" % o.floor],
    Trim: lambda o, _: [b"trim", *_stream(o), b"%d" % o.through],
    Drop: lambda o, _: [b"drop", *_stream(o)],
    Fence: lambda o, _: [b"fence", *_fenced(o)],
    Enqueue: _enqueue,
    Complete: lambda o, _: [b"complete", *_fenced(o)],
    Release: lambda o, _: [b"release", *_fenced(o), micros(o.ready_in)],
    Retry: lambda o, _: [b"retry", *_fenced(o), _reason(o.reason), micros(o.ready_in)],
    Bury: lambda o, _: [b"bury", *_fenced(o), _reason(o.reason)],
    Remove: lambda o, _: [b"remove", *_item(o)],
    Attach: lambda o, _: [b"attach", o.digest.encode(), o.holder.encode()],
    Detach: lambda o, _: [b"detach", o.digest.encode(), o.holder.encode()],
}


# --------------------------------------------------------------------------------------------------------- replies


def outcomes_of(operations: tuple[Operation, ...], answer: Sequence[Any]) -> tuple[Outcome, ...]:
    """Return the outcomes in the reply to a commit. Raise CommitRefused if it was refused."""
    if answer[0] == 0:
        operation = operations[answer[1] - 1]
        reason = answer[2].decode()
        found = answer[3]
        if reason == "field":
            found = value_of(found)
        elif reason == "blob":
            found = None
        raise CommitRefused(reason, operation, found=found)
    return tuple([_outcome(operation, found) for operation, found in zip(operations, answer[1:], strict=True)])


def _outcome(operation: Operation, found: Any) -> Outcome:
    kind = type(operation)
    if kind is Append:
        return tuple(found)
    if kind is Take:
        return record_of(operation.collection, operation.key, found)  # type: ignore[union-attr]
    if kind in _NUMBERS:
        number: int = found
        return number
    return None


_NUMBERS = frozenset((Insert, Restore, Put, Replace, Patch, Delete, Enqueue, Retry))


def record_of(collection: str, key: str, row: Sequence[Any]) -> Record:
    """Build a record from its version, fields, body and checksum."""
    version, fields, body, crc = row
    if checksum(body) != crc:
        raise StorageCorrupt.of(f"a record of {collection!r}")
    return Record(collection, key, int(version), body, unpack_fields(fields))


def topics_of(partition: str, operations: Iterable[Operation]) -> list[Topic]:
    """Return the topics that this commit notifies."""
    topics: list[Topic] = []
    for operation in operations:
        kind = type(operation)
        if kind in (Append, Drop):
            topics.append(LogTopic(partition, operation.log, operation.stream))  # type: ignore[union-attr]
        elif kind in (Release, Retry) or (kind is Enqueue and operation.worker is None):  # type: ignore[union-attr]
            topics.append(QueueTopic(operation.queue))  # type: ignore[union-attr]
    return topics


def came_back(operations: Iterable[Operation], answer: Sequence[Any]) -> list[Topic]:
    """Return the queues of completed items that are waiting again, which only the reply shows."""
    return [
        QueueTopic(operation.queue)
        for operation, found in zip(operations, answer[1:], strict=True)
        if isinstance(operation, Complete) and found == 1
    ]


# --------------------------------------------------------------------------------------------------------------- tokens


_SIGN = 1 << 63
_MASK = (1 << 64) - 1


def token_of(value: Scalar) -> bytes:
    """Encode a value. A long string, which the encoding hashes, also carries its text, and -0.0 its sign."""
    if isinstance(value, str):
        encoded = encode_text(value)
        if len(encoded) <= LONG_BYTES:  # the usual case: the text is not longer than its encoding
            return encoded
        raw = value.encode("utf-8", "surrogatepass")
        return b"L%04d%b%b" % (len(encoded), encoded, raw) if len(raw) > LONG_BYTES else encoded
    if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:
        return b"Z" + encode_one(value)
    return encode_one(value)


def value_of(token: bytes) -> Scalar:
    match token[:1]:
        case b" ":
            return token[1:-1].replace(b"\0\xff", b"\0").decode("utf-8", "surrogatepass")
        case b"L":
            return token[5 + int(token[1:5]) :].decode("utf-8", "surrogatepass")
        case b"\x10":
            return int.from_bytes(token[1:9]) - _SIGN
        case b"\x11":
            bits = int.from_bytes(token[1:9])
            real: float = struct.unpack(">d", (bits ^ _SIGN if bits & _SIGN else bits ^ _MASK).to_bytes(8))[0]
            return real
        case b"Z":
            return -0.0
        case b"\x02":
            return False
        case b"\x03":
            return True
        case _:
            return None


def pack_fields(fields: Fields) -> bytes:
    """Encode fields as name=length:token in their own order, which a copy preserves."""
    if not fields:
        return b""
    parts = []
    for name, given in fields.items():
        packed = token_of(given)
        parts.append(b"%b=%d:%b" % (name.encode(), len(packed), packed))
    return b"".join(parts)


def unpack_fields(text: bytes) -> Fields:
    if not text:
        return NO_FIELDS
    fields: dict[str, Scalar] = {}
    at = 0
    while at < len(text):
        equals = text.index(b"=", at)
        colon = text.index(b":", equals)
        end = colon + 1 + int(text[equals + 1 : colon])
        fields[text[at:equals].decode()] = value_of(text[colon + 1 : end])
        at = end
    return fields


def field_pieces(values: Mapping[str, Scalar]) -> list[bytes]:
    """Return names and tokens alternately; an empty token removes a field."""
    return [
        part for name, given in values.items() for part in (name.encode(), b"" if given is None else token_of(given))
    ]
