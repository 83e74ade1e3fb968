"""Subjects of adapters with a seeded fault."""

from __future__ import annotations

from keelbolt.conformance.turn_callbacks import TurnCallbacksSubject
from tests.conformance.broken.fault import Faults
from tests.conformance.broken.turn_callbacks.kept import Kept


def subject(kind: type[Kept]) -> TurnCallbacksSubject:
    return TurnCallbacksSubject(kind.__name__, lambda place: kind(place.name), persistent=True)


FAULTS = Faults(subject)
caught_by = FAULTS.caught_by
