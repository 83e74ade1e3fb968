"""Storage behaviour that the contract leaves open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from keelbolt.errors import InvalidValue
from keelbolt.turns.codec.kinds import Kind
from keelbolt.turns.durable.records import Duplicates
from keelbolt.turns.durable.scope import Reach
from keelbolt.turns.windows import FetchPolicy


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """``duplicates``: a different payload under a stored id is refused, or ignored, or replaces the stored one.

    ``upsert``: mutate stores a missing record instead of raising. ``memories`` and ``standing_instructions`` are
    shared by an agent of the tenant, by the whole tenant, or only within the thread.
    """

    fetch: FetchPolicy = field(default_factory=FetchPolicy)
    duplicates: Duplicates = "refuse"
    upsert: bool = False
    memories: Reach = "agent"
    standing_instructions: Reach = "agent"

    def __post_init__(self) -> None:
        if not isinstance(self.fetch, FetchPolicy):
            raise InvalidValue(f"fetch must be a FetchPolicy, not {type(self.fetch).__name__}")
        for name, value, allowed in (
            ("duplicates", self.duplicates, get_args(Duplicates)),
            ("memories", self.memories, get_args(Reach)),
            ("standing_instructions", self.standing_instructions, get_args(Reach)),
        ):
            if value not in allowed:
                raise InvalidValue(f"{name} must be one of {', '.join(allowed)}, not {value!r}")

    def reach(self, kind: Kind) -> Reach:
        if kind == "memory":
            return self.memories
        return self.standing_instructions if kind == "standing_instruction" else "thread"
