"""What a seeded fault is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from keelbolt.conformance.state_store import StateStoreSubject

S = TypeVar("S", bound=type[Any])


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    caught_by: str
    kind: type[Any]

    @property
    def subject(self) -> StateStoreSubject:
        return StateStoreSubject(self.name, lambda place: self.kind(place.name), persistent=True)


FAULTS: list[Fault] = []


def caught_by(*laws: str) -> Callable[[S], S]:
    """Seed this fault; its class name says what is broken."""

    def seed(kind: S) -> S:
        FAULTS.extend(Fault(kind.__name__, law, kind) for law in laws)
        return kind

    return seed
