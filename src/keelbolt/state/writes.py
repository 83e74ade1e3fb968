"""A write on its way to the storage, and several of them as one commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keelbolt.state.families import EVENTS, PLANNER_EVENTS
from keelbolt.state.lives import Life
from keelbolt.state.saving import Saving
from keelbolt.storage import Append, Draft, Operation, Put

GROUP_ENTRIES = 400
GROUP_BYTES = 4 * 1024 * 1024

# The logs whose items come in bursts, and the kinds of their entries: one item, or a JSON list of items that came
# together. Ten items in one entry cost a tenth of ten entries.
BURSTS = frozenset({EVENTS, PLANNER_EVENTS})
ONE = "one"
MANY = "many"


@dataclass(slots=True, eq=False)
class Write:
    """What one ``save_*`` was given, as it is to be committed.

    ``outcome`` is None for a write behind. ``alternative`` is written instead when a check of ``operations`` is
    refused. ``vital``: its loss is raised also under ``resilient``. ``plain``: its operations are Put and Append, and
    can share one commit with others like it. ``checks`` are the fences of the work that makes this write; ``lives`` are
    the sessions and traces that it belongs to: when one was erased, the write is refused.
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
    key: str | None = None  # named in the log where there is no trace
    checks: tuple[Operation, ...] = ()
    lives: tuple[Life, ...] = ()
    number: int = 0  # in the order of the calls, given by the writer
    spooled_at: float = 0.0  # Unix time, where it has to wait

    @property
    def certain(self) -> tuple[Operation, ...]:
        """What to write when it is not known what is stored."""
        return self.alternative or self.operations

    @property
    def count(self) -> int:
        """The number of operations and checks."""
        return len(self.operations) + len(self.checks) + len(self.lives)

    @property
    def guards(self) -> tuple[Operation, ...]:
        """The checks that every form of this write needs, as this process knows its sessions and traces now."""
        return (*self.checks, *(life.check for life in self.lives))


def keys_of(operations: Iterable[Operation]) -> list[tuple[str, str]]:
    """The records that these operations put."""
    return [(operation.collection, operation.key) for operation in operations if isinstance(operation, Put)]


def bundled(drafts: Sequence[Draft]) -> tuple[Draft, ...]:
    """Entries of kinds ONE and MANY that come together as one entry of kind MANY. Only for the logs in BURSTS."""
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


def merged(writes: Sequence[Write]) -> tuple[Operation, ...]:
    """One commit for all of them: entries of one stream side by side, of one record the last.

    Only for writes that are ``plain``.
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
