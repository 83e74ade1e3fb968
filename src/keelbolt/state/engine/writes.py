"""Pending writes, and their combination into one commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keelbolt.kernel import Append, Draft, Operation, Put
from keelbolt.state.engine.erasure_guard import ErasureGuard
from keelbolt.state.engine.saving import Saving
from keelbolt.state.families import EVENTS, PLANNER_EVENTS

GROUP_ENTRIES = 400
GROUP_BYTES = 4 * 1024 * 1024

# The logs whose items come in bursts, and the kinds of their entries: one item, or a JSON list of items that arrived
# together. Ten items in one entry cost a tenth of ten entries.
BURSTS = frozenset({EVENTS, PLANNER_EVENTS})
ONE = "one"
MANY = "many"


@dataclass(slots=True, eq=False)
class StateWrite:
    """The write of one ``save_*`` call.

    ``outcome`` is None for a write-behind save. ``alternative`` is written instead if a check of ``operations`` is
    refused. ``vital``: its loss is raised also under ``resilient``. ``plain``: its operations are Put and Append and
    can share a commit with other plain writes. ``checks`` are the fences of the task that makes this write; ``lives``
    are the sessions and traces that it belongs to: if one was erased, the write is refused.
    """

    partition: str
    method: str
    operations: tuple[Operation, ...]
    size: int
    trace_id: str | None = None
    outcome: Saving | None = None
    alternative: tuple[Operation, ...] | None = None
    vital: bool = False
    plain: bool = False
    key: str | None = None  # logged if there is no trace
    checks: tuple[Operation, ...] = ()
    lives: tuple[ErasureGuard, ...] = ()
    number: int = 0  # position in call order, set by the writer
    spooled_at: float = 0.0  # Unix time, if it was spooled

    @property
    def certain(self) -> tuple[Operation, ...]:
        """The operations to write if the stored state is unknown."""
        return self.alternative or self.operations

    @property
    def count(self) -> int:
        """The number of operations and checks."""
        return len(self.operations) + len(self.checks) + len(self.lives)

    @property
    def guards(self) -> tuple[Operation, ...]:
        """The checks that every form of this write needs, for the current state of its sessions and traces."""
        return (*self.checks, *(life.check for life in self.lives))


def keys_of(operations: Iterable[Operation]) -> list[tuple[str, str]]:
    """Return the records that these operations put."""
    return [(operation.collection, operation.key) for operation in operations if isinstance(operation, Put)]


def bundled(drafts: Sequence[Draft]) -> tuple[Draft, ...]:
    """Combine entries of kinds ONE and MANY into entries of kind MANY. Only for the logs in BURSTS."""
    if len(drafts) == 1:
        return tuple(drafts)
    bundles: list[list[bytes]] = []
    size = GROUP_BYTES
    for draft in drafts:
        size += len(draft.data)
        if size > GROUP_BYTES:
            bundles.append([])
            size = len(draft.data)
        bundles[-1].append(draft.data if draft.kind == ONE else draft.data[1:-1])
    return tuple(Draft(MANY, b"[%b]" % b",".join(items)) for items in bundles)


def merged(writes: Sequence[StateWrite]) -> tuple[Operation, ...]:
    """Combine the writes into one commit: entries of one stream together, for each record the last Put.

    Only for ``plain`` writes.
    """
    if len(writes) == 1:
        return (*writes[0].guards, *writes[0].operations)
    guards = dict.fromkeys(guard for write in writes for guard in write.guards)
    entries: dict[tuple[str, str], list[Draft]] = {}
    puts: dict[tuple[str, str], Put] = {}
    for write in writes:
        for operation in write.operations:
            if isinstance(operation, Append):
                entries.setdefault((operation.log, operation.stream), []).extend(operation.entries)
            elif isinstance(operation, Put):
                puts[operation.collection, operation.key] = operation
    appends = (
        Append(log, stream, bundled(drafts) if log in BURSTS else tuple(drafts))
        for (log, stream), drafts in entries.items()
    )
    return (*guards, *appends, *puts.values())
