"""Determines which keys an engine must load before it can decide commits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.ledger import Key, Ledger
from keelbolt.kernel.logs import Append, Drop, Head, Start, Trim
from keelbolt.kernel.records import Take
from keelbolt.kernel.work import Bury, Complete, Enqueue, Fence, Release, Remove, Retry

_LOGS = frozenset((Append, Start, Trim, Drop, Head))
_WORK = frozenset((Enqueue, Complete, Release, Retry, Bury, Remove, Fence))
_BLOBS = frozenset((Attach, Detach))


@dataclass(slots=True)
class NeededKeys:
    """Each key once, in the order of the operations; ``takes`` are records whose bodies are needed too."""

    records: dict[Key, None] = field(default_factory=dict)
    takes: dict[Key, None] = field(default_factory=dict)
    streams: dict[Key, None] = field(default_factory=dict)
    work: dict[Key, None] = field(default_factory=dict)
    blobs: dict[tuple[str, str], None] = field(default_factory=dict)
    appends: list[tuple[Key, Append]] = field(default_factory=list)

    def dedupes(self, ledger: Ledger) -> dict[tuple[int, str], None]:
        """Return (stream id, dedupe key) of the entries to append to existing streams. Load the streams first."""
        return {
            (stream.id, draft.dedupe): None
            for key, append in self.appends
            if (stream := ledger.streams[key]) is not None
            for draft in append.entries
            if draft.dedupe is not None
        }


def wanted_by(commits: Iterable[tuple[str, Sequence[Operation]]], ledger: Ledger) -> NeededKeys:
    """Return the keys that these commits touch and the ledger does not have.

    Work items and blobs are always loaded, because others change them.
    """
    wanted = NeededKeys()
    for partition, operations in commits:
        for operation in operations:
            kind = type(operation)
            if kind in _LOGS:
                key = (partition, operation.log, operation.stream)  # type: ignore[union-attr]
                if key not in ledger.streams:
                    wanted.streams[key] = None
                if kind is Append and any(draft.dedupe is not None for draft in operation.entries):  # type: ignore[union-attr]
                    wanted.appends.append((key, operation))  # type: ignore[arg-type]
            elif kind in _WORK:
                wanted.work[partition, operation.queue, operation.key] = None  # type: ignore[union-attr]
            elif kind in _BLOBS:
                wanted.blobs[partition, operation.digest] = None  # type: ignore[union-attr]
            else:
                key = (partition, operation.collection, operation.key)  # type: ignore[union-attr]
                if key not in ledger.records:
                    wanted.records[key] = None
                if kind is Take:
                    wanted.takes[key] = None
    return wanted
