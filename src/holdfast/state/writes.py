"""A write on its way to the storage, and several of them as one commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from holdfast.storage import Append, Draft, Operation, Put

GROUP_ENTRIES = 400
GROUP_BYTES = 4 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Write:
    """What one ``save_*`` was given, as it is to be committed.

    ``outcome`` is None when nobody waits for it. ``alternative`` is what to write instead when a check of
    ``operations`` is refused; it needs no check. ``vital``: whoever saved it must be told when it is kept nowhere.
    ``plain``: it consists of Put and Append, which nothing can refuse, and can be one commit with others like it.
    """

    partition: str
    method: str
    operations: tuple[Operation, ...]
    size: int
    trace_id: str | None = None
    outcome: Future[None] | None = None
    alternative: tuple[Operation, ...] | None = None
    vital: bool = False
    plain: bool = False
    number: int = 0  # in the order of the calls, given by the writer

    @property
    def certain(self) -> tuple[Operation, ...]:
        """What to write when it is not known what is stored."""
        return self.alternative or self.operations


def keys_of(operations: Iterable[Operation]) -> list[tuple[str, str]]:
    """The records that these operations put."""
    return [(operation.collection, operation.key) for operation in operations if isinstance(operation, Put)]


def merged(writes: Sequence[Write]) -> tuple[Operation, ...]:
    """One commit for all of them: entries of one stream side by side, of one record the last.

    Only for writes that are ``plain``.
    """
    if len(writes) == 1:
        return writes[0].operations
    entries: dict[tuple[str, str], list[Draft]] = {}
    puts: dict[tuple[str, str], Put] = {}
    for write in writes:
        for operation in write.operations:
            if isinstance(operation, Append):
                entries.setdefault((operation.log, operation.stream), []).extend(operation.entries)
            elif isinstance(operation, Put):
                puts[operation.collection, operation.key] = operation
    appends = (Append(log, stream, tuple(drafts)) for (log, stream), drafts in entries.items())
    return (*appends, *puts.values())
