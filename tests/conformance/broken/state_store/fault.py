"""Subjects of StateStores with a seeded fault."""

from __future__ import annotations

from functools import partial
from typing import Any

from keelbolt.conformance.state_store import StateStorePlace, StateStoreSubject
from keelbolt.state import StateStore
from tests.conformance.broken.fault import Faults


def subject(kind: type[Any]) -> StateStoreSubject:
    if issubclass(kind, StateStore):  # on a file, which other processes see
        return StateStoreSubject(kind.__name__, partial(_on_file, kind), persistent=True, processes=True)
    return StateStoreSubject(kind.__name__, lambda place: kind(place.name), persistent=True)


def _on_file(kind: type[StateStore], place: StateStorePlace) -> StateStore:
    return kind(f"sqlite:///{place.directory}/state.db")


FAULTS = Faults(subject)
caught_by = FAULTS.caught_by
