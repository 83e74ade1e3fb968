"""What a seeded fault is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from keelbolt.conformance.turn_callbacks import TurnCallbacksSubject
from tests.conformance.broken_turns.kept import Kept

K = TypeVar("K", bound=type[Kept])


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    caught_by: str
    kind: type[Kept]

    @property
    def subject(self) -> TurnCallbacksSubject:
        return TurnCallbacksSubject(self.name, lambda place: self.kind(place.name), persistent=True)


FAULTS: list[Fault] = []


def caught_by(*laws: str) -> Callable[[K], K]:
    """Seed this fault; its class name says what is broken."""

    def seed(kind: K) -> K:
        FAULTS.extend(Fault(kind.__name__, law, kind) for law in laws)
        return kind

    return seed
