"""Adapts random operations to the current state, so that they fit it or just miss it."""

from __future__ import annotations

from msgspec.structs import replace

from keelbolt.conformance.kernel.histories.chance import RIGHT
from keelbolt.conformance.kernel.histories.model import EngineModel, ModelStream
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Check, Operation, address
from keelbolt.kernel.logs import Head
from keelbolt.kernel.records import (
    Absent,
    Delete,
    FieldIn,
    FieldNotIn,
    Insert,
    Patch,
    Present,
    Put,
    Replace,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Complete, Enqueue, Fence, Release, Retry


def resolve(model: EngineModel, partition: str, operation: Operation, *, steered: bool) -> Operation:
    """Replace RIGHT and WRONG by real versions, seqs and fences.

    With ``steered``, an operation that would be refused becomes one that is not, so that most commits succeed.
    """
    if steered:
        operation = _steer(model, partition, operation)
    match operation:
        case Version() | Replace() | Patch() | Delete() if operation.version is not None:
            record = model.records.get((partition, operation.collection, operation.key))
            version = record.version if record else 1
            return replace(operation, version=version if operation.version == RIGHT else version + 1)
        case Head():
            head = model.streams.get((partition, operation.log, operation.stream), ModelStream()).head
            return replace(operation, seq=head if operation.seq == RIGHT else head + 1)
        case Fence() | Complete() | Release() | Retry() | Bury():
            fence = model.fences[partition, operation.queue, operation.key]
            return replace(operation, fence=max(fence if operation.fence == RIGHT else fence - 1, 1))
        case _:
            return operation


def _steer(model: EngineModel, partition: str, operation: Operation) -> Operation:
    match operation:
        case (
            Insert()
            | Replace()
            | Patch()
            | Delete()
            | Take()
            | Version()
            | Absent()
            | Present()
            | FieldIn()
            | FieldNotIn()
        ):
            record = model.records.get((partition, operation.collection, operation.key))
            if record is None and not isinstance(operation, Absent):
                return Insert(operation.collection, operation.key, b"", getattr(operation, "fields", {}))
            if isinstance(operation, Insert):
                return Put(operation.collection, operation.key, operation.body, operation.fields)
            if isinstance(operation, FieldIn | FieldNotIn | Absent | Present):
                return Version(operation.collection, operation.key, RIGHT)
            return operation if isinstance(operation, Take) else replace(operation, version=RIGHT)
        case Head():
            return replace(operation, seq=RIGHT)
        case Fence() | Complete() | Release() | Retry() | Bury():
            item = model.items.get((partition, operation.queue, operation.key))
            if item is None or item.state != "held":
                return Enqueue(operation.queue, operation.key, worker="w1")
            return replace(operation, fence=RIGHT)
        case Enqueue():
            item = model.items.get((partition, operation.queue, operation.key))
            return replace(operation, worker=None) if item is not None and item.state == "held" else operation
        case Attach() if (partition, operation.digest) not in model.blobs:
            return Detach(operation.digest, operation.holder)
        case _:
            return operation


def written_twice(operations: tuple[Operation, ...]) -> bool:
    written = [(_noun(operation), *address(operation)) for operation in operations if not isinstance(operation, Check)]
    return len(set(written)) < len(written)


def same(operation: Operation, check: object) -> bool:
    """Whether a refusal means this operation: engines may leave out fields that are None."""
    if type(operation) is not type(check) or address(operation) != address(check):
        return False
    return isinstance(operation, Insert | Put | Replace | Patch) or operation == check


def _noun(operation: Operation) -> str:
    nouns = ("collection", "log", "queue", "digest")
    return next(noun for noun in nouns if hasattr(operation, noun))
