"""What a seeded fault is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from keelbolt.conformance.state_store import StatePlace, StateStoreSubject
from keelbolt.state import StateStore

S = TypeVar("S", bound=type[Any])


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    caught_by: str
    kind: type[Any]

    @property
    def subject(self) -> StateStoreSubject:
        if issubclass(self.kind, StateStore):  # on a file, which other processes see
            return StateStoreSubject(self.name, partial(_on_file, self.kind), persistent=True, processes=True)
        return StateStoreSubject(self.name, lambda place: self.kind(place.name), persistent=True)


def _on_file(kind: type[StateStore], place: StatePlace) -> StateStore:
    return kind(f"sqlite:///{place.directory}/state.db")


FAULTS: list[Fault] = []


def caught_by(*laws: str) -> Callable[[S], S]:
    """Seed this fault; its class name says what is broken."""

    def seed(kind: S) -> S:
        FAULTS.extend(Fault(kind.__name__, law, kind) for law in laws)
        return kind

    return seed
