"""Checks and copies the arguments of a call before it has any effect; an invalid call raises a typed error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from reprlib import repr as brief
from typing import Any

from keelbolt.errors import InvalidName, InvalidRequest, InvalidValue, NotDeclared, TooLarge, WrittenTwice
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import (
    MAX_COMMIT_BYTES,
    MAX_KEY_CHARS,
    MAX_PARTITION_BYTES,
    MAX_REASON_CHARS,
    MAX_VALUE_BYTES,
)
from keelbolt.kernel.declarations import CheckedCollection, Declarations, check_name
from keelbolt.kernel.logs import Append, Draft, Drop, Head, Start, Trim
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
    Query,
    Replace,
    Restore,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Complete, Enqueue, Fence, Release, Remove, Retry

MAX_SECONDS = 100 * 366 * 86400.0
MAX_OPERATIONS = 1000
MAX_KNOWN_KINDS = 1000
_INT_LIMIT = 1 << 63


def checked_operations(declared: Declarations, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """Return the operations of one commit, checked and copied, so that later changes by the caller have no effect."""
    if not operations:
        raise InvalidRequest("a commit needs at least one operation")
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(
            f"a commit has at most {MAX_OPERATIONS} operations; this one has {len(operations)}, and nothing is stored. "
            "Write fewer items in one call"
        )
    copies = []
    size = kinds = 0
    once = True
    for operation in operations:
        handler, kind = _HANDLERS.get(type(operation), _UNKNOWN)
        copy, length = handler(declared, operation)
        copies.append(copy)
        size += length
        once = once and not kinds & kind  # two writes of different kinds never share a key
        kinds |= kind
    if size > MAX_COMMIT_BYTES:
        raise TooLarge(f"a commit carries at most {MAX_COMMIT_BYTES} bytes; put large bytes into a blob")
    if not once:
        _check_once(operations)
    return tuple(copies)


def _check_once(operations: tuple[Operation, ...]) -> None:
    seen: set[tuple[str, str, str]] = set()
    for operation in operations:
        place_of = _PLACES.get(type(operation))
        if place_of is not None:
            kind, names = place_of
            family, name = names(operation)
            if (kind, family, name) in seen:
                raise WrittenTwice(
                    f"one commit writes {family}/{name[:80]} twice; merge the two writes or make two commits"
                )
            seen.add((kind, family, name))


def check_partition(partition: str) -> None:
    """Raise InvalidName unless the partition is 1 to 200 bytes of text without NUL."""
    if not isinstance(partition, str) or not partition:
        raise InvalidName(f"a partition must be a non-empty string, not {brief(partition)}")
    _check_partition_text(partition)


@lru_cache(maxsize=4096)
def _check_partition_text(partition: str) -> None:
    if "\0" in partition or _surrogates(partition) or len(partition.encode()) > MAX_PARTITION_BYTES:
        raise InvalidName(f"a partition is at most {MAX_PARTITION_BYTES} bytes of valid text without NUL")


def check_family(name: str, what: str) -> None:
    if type(name) is str:
        _check_family_text(name, what)
    else:
        check_name(name, what)


_check_family_text = lru_cache(maxsize=4096)(check_name)


def check_key(key: str, what: str = "key") -> None:
    """Raise InvalidName unless the key is 1 to 4,000 characters of valid text without NUL."""
    if type(key) is not str or not key:
        raise InvalidName(f"a {what} must be a non-empty string, not {brief(key)}")
    if len(key) > MAX_KEY_CHARS:
        raise InvalidName(f"a {what} has at most {MAX_KEY_CHARS} characters; this one has {len(key)}")
    if "\0" in key or (not key.isascii() and _surrogates(key)):
        raise InvalidName(f"a {what} must be valid text without NUL characters")


def _surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def check_count(value: int, what: str, *, low: int = 0, high: int = _INT_LIMIT - 1) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidValue(f"{what} must be a whole number from {low} to {high}, not {brief(value)}")


def check_seconds(value: float, what: str, *, positive: bool = False) -> None:
    if type(value) not in (int, float) or not 0 <= value <= MAX_SECONDS:
        raise InvalidValue(f"{what} must be seconds, from 0 to a hundred years, not {brief(value)}")
    if positive and value == 0:
        raise InvalidValue(f"{what} must be more than 0 seconds")


def check_worker(worker: str, lease_seconds: float) -> None:
    check_partition(worker)
    check_seconds(lease_seconds, "lease_seconds", positive=True)


def check_query(declared: Declarations, query: Query) -> CheckedCollection:
    """Check a query and return the shape of its collection."""
    if not isinstance(query, Query) or not isinstance(query.equal, Mapping):
        raise InvalidValue("find and count take a Query, whose equal is a mapping of fields to values")
    shape = declared.shape(query.collection)
    for name, value in query.equal.items():
        shape.check_value(name, value)
    for bound in (query.since, query.until):
        if bound is not None:
            if query.order is None:
                check_key(bound)  # type: ignore[arg-type]
            else:
                shape.check_value(query.order, bound)
    return shape


def check_data(data: bytes, what: str) -> None:
    if type(data) is not bytes:
        raise InvalidValue(f"{what} must be bytes, not {type(data).__name__}; encode it first")
    if len(data) > MAX_VALUE_BYTES:
        raise TooLarge(f"{what} has {len(data)} bytes, the limit is {MAX_VALUE_BYTES}; put it into a blob")


def check_reason(reason: str) -> None:
    if type(reason) is not str or len(reason) > MAX_REASON_CHARS or "\0" in reason or _surrogates(reason):
        raise InvalidValue(f"a reason is valid text of at most {MAX_REASON_CHARS} characters, without NUL")


# -------------------------------------------------------------------------------------- one handler per operation


def _write(declared: Declarations, operation: Insert | Put) -> tuple[Operation, int]:
    fields = _content(declared, operation)
    body = operation.body
    if fields is not operation.fields:
        operation = type(operation)(operation.collection, operation.key, body, fields, operation.expires_in)
    return operation, len(body)


def _replace(declared: Declarations, operation: Replace | Restore) -> tuple[Operation, int]:
    version = operation.version
    if type(version) is not int or not 1 <= version < _INT_LIMIT:
        check_count(version, "an expected version", low=1)
    fields = _content(declared, operation)
    body = operation.body
    if fields is not operation.fields:
        operation = type(operation)(operation.collection, operation.key, version, body, fields, operation.expires_in)
    return operation, len(body)


def _content(declared: Declarations, operation: Insert | Restore | Put | Replace) -> Fields:
    """Check the content of a record and return a copy of its fields."""
    shape = declared.shape(operation.collection)
    check_key(operation.key)
    check_data(operation.body, "a record's body")
    if operation.expires_in is not None:
        if not shape.collection.expiring:
            raise NotDeclared(f"collection {shape.name!r} is not declared with expiring=True")
        check_seconds(operation.expires_in, "expires_in")
    return NO_FIELDS if operation.fields is NO_FIELDS else shape.fields(_mapping(operation.fields))


def _mapping(fields: Fields) -> Fields:
    if not isinstance(fields, Mapping):
        raise InvalidValue(f"fields must be a mapping of names to values, not {type(fields).__name__}")
    return fields


def _patch(declared: Declarations, operation: Patch) -> tuple[Operation, int]:
    shape = declared.shape(operation.collection)
    _check_optional_version(operation)
    check_key(operation.key)
    return Patch(operation.collection, operation.key, shape.checked(_mapping(operation.fields)), operation.version), 0


def _record(declared: Declarations, operation: Absent | Present | Take | Version | Delete) -> tuple[Operation, int]:
    declared.shape(operation.collection)
    check_key(operation.key)
    if isinstance(operation, Version):
        check_count(operation.version, "an expected version", low=1)
    elif isinstance(operation, Delete):
        _check_optional_version(operation)
    return operation, 0


def _check_optional_version(operation: Patch | Delete) -> None:
    if operation.version is not None:
        check_count(operation.version, "an expected version", low=1)


def _field(declared: Declarations, operation: FieldIn | FieldNotIn) -> tuple[Operation, int]:
    shape = declared.shape(operation.collection)
    check_key(operation.key)
    if not isinstance(operation.values, tuple | list | set | frozenset):
        raise InvalidValue(f"the values of a check must be a tuple, not {type(operation.values).__name__}")
    values = tuple(operation.values)
    for value in (None, *values):
        shape.check_value(operation.field, value)
    return type(operation)(operation.collection, operation.key, operation.field, values), 0


_kinds: set[str] = set()  # kinds of entries that were checked; a program has few


def _check_kind(kind: str) -> None:
    check_key(kind, "kind")
    if len(_kinds) < MAX_KNOWN_KINDS:
        _kinds.add(kind)


def _append(_declared: Declarations, operation: Append) -> tuple[Operation, int]:
    check_family(operation.log, "log")
    check_key(operation.stream, "stream")
    entries = operation.entries
    if type(entries) is not tuple:
        if not isinstance(entries, list):
            raise InvalidValue(f"the entries to append must be a tuple of Drafts, not {type(entries).__name__}")
        entries = tuple(entries)
        operation = Append(operation.log, operation.stream, entries)
    if not entries:
        raise InvalidValue("an Append needs at least one entry")
    size = 0
    for draft in entries:
        if type(draft) is not Draft:
            raise InvalidValue(f"an entry to append must be a Draft, not {type(draft).__name__}")
        data = draft.data
        if type(draft.kind) is not str or draft.kind not in _kinds:
            _check_kind(draft.kind)
        if type(data) is not bytes or len(data) > MAX_VALUE_BYTES:
            check_data(data, "an entry's data")
        if draft.dedupe is not None:
            check_key(draft.dedupe, "dedupe key")
        size += len(data)
    return operation, size


def _stream(_declared: Declarations, operation: Head | Start | Trim | Drop) -> tuple[Operation, int]:
    check_family(operation.log, "log")
    check_key(operation.stream, "stream")
    if isinstance(operation, Head):
        check_count(operation.seq, "a seq")
    elif isinstance(operation, Trim):
        check_count(operation.through, "through")
    elif isinstance(operation, Start):
        check_count(operation.floor, "a floor")
    return operation, 0


def _enqueue(_declared: Declarations, operation: Enqueue) -> tuple[Operation, int]:
    check_family(operation.queue, "queue")
    check_key(operation.key)
    check_seconds(operation.ready_in, "ready_in")
    check_count(operation.priority, "priority", low=-(1 << 31), high=1 << 31)
    check_count(operation.max_attempts, "max_attempts", low=1, high=1 << 31)
    if operation.lane != "":
        check_partition(operation.lane)
    if operation.worker is not None:
        check_partition(operation.worker)
    return operation, 0


def _work(
    _declared: Declarations, operation: Fence | Complete | Release | Retry | Bury | Remove
) -> tuple[Operation, int]:
    check_family(operation.queue, "queue")
    check_key(operation.key)
    if not isinstance(operation, Remove):
        check_count(operation.fence, "a fence", low=1)
    if isinstance(operation, Release | Retry):
        check_seconds(operation.ready_in, "ready_in")
    if isinstance(operation, Retry | Bury):
        check_reason(operation.reason)
    return operation, 0


def _blob(_declared: Declarations, operation: Attach | Detach) -> tuple[Operation, int]:
    check_key(operation.digest, "digest")
    check_key(operation.holder, "holder")
    return operation, 0


def _unknown(_declared: Declarations, operation: object) -> tuple[Operation, int]:
    raise InvalidValue(f"{brief(operation)} is not an operation of a commit; pass Insert(...), Append(...) and so on")


_CHECK, _RECORD, _LOG, _ITEM, _HOLDING = 0, 1, 2, 4, 8
_UNKNOWN = (_unknown, _CHECK)
_HANDLERS: dict[type[Operation], tuple[Callable[[Declarations, Any], tuple[Operation, int]], int]] = {
    Version: (_record, _CHECK),
    Absent: (_record, _CHECK),
    Present: (_record, _CHECK),
    FieldIn: (_field, _CHECK),
    FieldNotIn: (_field, _CHECK),
    Insert: (_write, _RECORD),
    Restore: (_replace, _RECORD),
    Put: (_write, _RECORD),
    Replace: (_replace, _RECORD),
    Patch: (_patch, _RECORD),
    Delete: (_record, _RECORD),
    Take: (_record, _RECORD),
    Head: (_stream, _CHECK),
    Append: (_append, _LOG),
    Start: (_stream, _LOG),
    Trim: (_stream, _LOG),
    Drop: (_stream, _LOG),
    Fence: (_work, _CHECK),
    Enqueue: (_enqueue, _ITEM),
    Complete: (_work, _ITEM),
    Release: (_work, _ITEM),
    Retry: (_work, _ITEM),
    Bury: (_work, _ITEM),
    Remove: (_work, _ITEM),
    Attach: (_blob, _HOLDING),
    Detach: (_blob, _HOLDING),
}

_PLACES: dict[type[Operation], tuple[str, Callable[[Any], tuple[str, str]]]] = {
    **dict.fromkeys((Insert, Restore, Put, Replace, Patch, Delete, Take), ("record", attrgetter("collection", "key"))),
    **dict.fromkeys((Append, Start, Trim, Drop), ("log", attrgetter("log", "stream"))),
    **dict.fromkeys((Enqueue, Complete, Release, Retry, Bury, Remove), ("work", attrgetter("queue", "key"))),
    **dict.fromkeys((Attach, Detach), ("blob", attrgetter("digest", "holder"))),
}
