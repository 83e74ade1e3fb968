"""The operations of a commit, and its receipt."""

from __future__ import annotations

from msgspec import Struct

from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.logs import Append, Drop, Head, Start, Trim
from keelbolt.kernel.records import (
    Absent,
    Delete,
    Expire,
    FieldIn,
    FieldNotIn,
    Insert,
    Patch,
    Present,
    Put,
    Record,
    Replace,
    Restore,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Complete, Enqueue, Fence, Release, Remove, Retry

Check = Version | Absent | Present | FieldIn | FieldNotIn | Head | Fence
RecordWrite = Insert | Restore | Put | Replace | Patch | Delete | Take | Expire
LogWrite = Append | Start | Trim | Drop
WorkWrite = Enqueue | Complete | Release | Retry | Bury | Remove
BlobWrite = Attach | Detach
Operation = Check | RecordWrite | LogWrite | WorkWrite | BlobWrite

RELIEF_BYTES = 4096  # bytes that a commit may add to a full store if it also frees space
_RELIEF = frozenset((Delete, Expire, Take, Trim, Drop, Complete, Release, Retry, Bury, Remove, Detach))

Outcome = int | tuple[int, ...] | Record | None


class Receipt(Struct, frozen=True, gc=False):
    """The result of a commit. A key is written at most once in a commit, so the key identifies its outcome."""

    operations: tuple[Operation, ...]
    outcomes: tuple[Outcome, ...]

    def version(self, collection: str, key: str) -> int:
        """Return the version that this commit gave the record (0: it was deleted)."""
        outcome = self._of((Insert, Restore, Put, Replace, Patch, Delete), collection, key)
        assert isinstance(outcome, int)
        return outcome

    def taken(self, collection: str, key: str) -> Record:
        """Return the record that this commit took."""
        outcome = self._of((Take,), collection, key)
        assert isinstance(outcome, Record)
        return outcome

    def seqs(self, log: str, stream: str) -> tuple[int, ...]:
        """Return the seq of each appended entry, in order; for a duplicate, the seq of the first entry."""
        for operation, outcome in zip(self.operations, self.outcomes, strict=True):
            if type(operation) is Append and operation.stream == stream and operation.log == log:
                assert isinstance(outcome, tuple)
                return outcome
        raise KeyError(f"this commit has no Append of {log}/{stream}")

    def fence(self, queue: str, key: str) -> int:
        """Return the fence with which this commit's Enqueue claimed the item for its worker (0: not claimed)."""
        for operation, outcome in zip(self.operations, self.outcomes, strict=True):
            if type(operation) is Enqueue and operation.key == key and operation.queue == queue:
                assert isinstance(outcome, int)
                return outcome
        raise KeyError(f"this commit has no Enqueue of {queue}/{key}")

    def dead(self, queue: str, key: str) -> bool:
        """Return whether this commit's Retry was the last attempt, so that the item is now dead."""
        return self._of((Retry,), queue, key) == 1

    def _of(self, kinds: tuple[type[Operation], ...], family: str, name: str) -> Outcome:
        for operation, outcome in zip(self.operations, self.outcomes, strict=True):
            if isinstance(operation, kinds) and address(operation) == (family, name):
                return outcome
        raise KeyError(f"this commit has no {' or '.join(kind.__name__ for kind in kinds)} of {family}/{name}")


def address(operation: Operation) -> tuple[str, str]:
    """Return (collection, key), (log, stream) or (queue, key) of an operation; for a blob (digest, holder)."""
    match operation:
        case Append() | Start() | Trim() | Drop() | Head():
            return operation.log, operation.stream
        case Enqueue() | Complete() | Release() | Retry() | Bury() | Remove() | Fence():
            return operation.queue, operation.key
        case Attach() | Detach():
            return operation.digest, operation.holder
        case _:
            return operation.collection, operation.key


def relieves(operations: tuple[Operation, ...]) -> bool:
    """Return whether a commit is allowed while the store is full: it frees space and adds at most RELIEF_BYTES."""
    if not any(type(operation) in _RELIEF for operation in operations):
        return False
    added = 0
    for operation in operations:
        if isinstance(operation, Insert | Restore | Put | Replace):
            added += len(operation.body)
        elif isinstance(operation, Append):
            added += sum(len(draft.data) for draft in operation.entries)
    return added <= RELIEF_BYTES
