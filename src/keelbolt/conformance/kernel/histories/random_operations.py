"""Random operations on a few keys, adapted to the current state so that they fit it or just miss it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from keelbolt.conformance.kernel.histories.model import EngineModel, ModelStream
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Check, Operation, address
from keelbolt.kernel.logs import Append, Draft, Drop, Head, Trim
from keelbolt.kernel.records import (
    Absent,
    Delete,
    FieldIn,
    FieldNotIn,
    Insert,
    Patch,
    Present,
    Put,
    Query,
    Replace,
    Scalar,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Complete, Enqueue, Fence, Release, Remove, Retry


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


# --------------------------------------------------------------------------------------------------------------- chance


T = TypeVar("T")

PARTITIONS = ("p", "q")
COLLECTIONS = ("things", "counted")
KEYS = ("a", "b", "c", "d")
STREAMS = ("s", "t")
QUEUES = ("runs", "calls")
ITEMS = ("a", "b", "c", "d", "e")
WORKERS = ("w1", "w2", "w3")
DATA = (b"one blob", b"another blob")
DIGESTS = (*(hashlib.sha256(data).hexdigest() for data in DATA), "0" * 64)
LATER_SECONDS = 3600.0

RIGHT, WRONG = -1, -2  # versions, seqs and fences that are resolved when the commit is made


class Chance:
    """The random choices of one step; the same seed gives the same choices."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def one(self, *choices: T) -> T:
        return self.random.choice(choices)

    def often(self) -> bool:
        return self.random.random() < 0.75

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def partition(self) -> str:
        return self.one(*PARTITIONS)

    # -------------------------------------------------------------------------------------------------- operations

    def commit(self) -> tuple[str, tuple[Operation, ...]]:
        return self.partition(), tuple(self.operation() for _ in range(self.one(1, 1, 2, 3, 4)))

    def operation(self) -> Operation:
        kinds: tuple[Callable[[], Operation], ...] = (self.record, self.log, self.work, self.blob)
        return self.random.choices(kinds, (4, 3, 4, 1))[0]()

    def record(self) -> Operation:
        collection, key = self.one(*COLLECTIONS), self.one(*KEYS)
        body, fields = self.one(b"", b"1", b"\0{}", b"x" * 100), self.fields()
        guess, perhaps = self.guess(), self.one(None, None, self.guess())
        states = tuple(self.one("new", "done", None) for _ in range(self.number(0, 2)))
        choices: tuple[Operation, ...] = (
            Put(collection, key, body, fields),
            Put(collection, key, body, fields),
            Put(collection, key, body, fields),
            Insert(collection, key, body, fields),
            Replace(collection, key, guess, body, fields),
            Patch(collection, key, fields, perhaps),
            Patch(collection, key, fields, perhaps),
            Delete(collection, key, perhaps),
            Take(collection, key),
            Version(collection, key, guess),
            Absent(collection, key),
            Present(collection, key),
            FieldIn(collection, key, "state", states),
            FieldNotIn(collection, key, "state", states),
        )
        return self.random.choice(choices)

    def fields(self) -> dict[str, Scalar]:
        fields: dict[str, Scalar] = {
            "state": self.one("new", "new", "done", None),
            "owner": self.one("me", None),
            "rank": self.one(-1, 0, 1, 2, None),
        }
        return {name: value for name, value in fields.items() if self.often()}

    def log(self) -> Operation:
        stream = self.one(*STREAMS)
        if self.random.random() < 0.6:
            return Append("log", stream, tuple(self.draft() for _ in range(self.number(1, 3))))
        trim, head = Trim("log", stream, self.number(0, 8)), Head("log", stream, self.guess())
        choices: tuple[Operation, ...] = (trim, trim, head, head, head, Drop("log", stream))
        return self.random.choice(choices)

    def draft(self) -> Draft:
        return Draft("note", self.one(b"", b"x", b"y" * 300), self.one(None, None, "d1", "d2", "d3"))

    def work(self) -> Operation:
        queue, key, guess, ready_in = self.one(*QUEUES), self.one(*ITEMS), self.guess(), self.ready_in()
        choices: tuple[Operation, ...] = (
            self.enqueue(),
            self.enqueue(),
            self.enqueue(),
            Complete(queue, key, guess),
            Release(queue, key, guess, ready_in),
            Retry(queue, key, guess, "why", ready_in),
            Bury(queue, key, guess, "end"),
            Remove(queue, key),
            Fence(queue, key, guess),
        )
        return self.random.choice(choices)

    def enqueue(self, queue: str | None = None) -> Enqueue:
        return Enqueue(
            queue or self.one(*QUEUES),
            self.one(*ITEMS),
            ready_in=self.ready_in(),
            lane=self.one("", "l"),
            priority=self.one(0, 0, 5, -5),
            max_attempts=self.one(1, 2, 5),
            worker=self.one(None, None, None, *WORKERS),
        )

    def ready_in(self) -> float:
        return self.one(0.0, 0.0, 0.0, LATER_SECONDS)

    def guess(self) -> int:
        return self.one(RIGHT, RIGHT, RIGHT, WRONG)

    def blob(self) -> Operation:
        digest, holder = self.one(*DIGESTS), self.one("h1", "h2")
        return Attach(digest, holder) if self.one(True, False) else Detach(digest, holder)

    # ----------------------------------------------------------------------------------------------------- queries

    def query(self) -> Query:
        newest_first = self.one(True, False)
        since, until = self.one(None, None, -1, 0, 1), self.one(None, None, 0, 1, 2)
        return self.one(
            Query("things", newest_first=newest_first),
            Query("things", {"state": self.one("new", None)}, newest_first=newest_first),
            Query("things", {}, "rank", since, until, newest_first),
            Query("things", {}, "rank", since, until, newest_first),
            Query("counted", {"state": "new"}, "rank", since, until, newest_first),
            Query("counted", {"owner": self.one("me", None)}),
        )
