"""Seeded faults of one suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from keelbolt.conformance.suite import ConformanceSubject

T = TypeVar("T", bound=type[Any])


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    caught_by: str
    subject: ConformanceSubject[Any]


class Faults(list[Fault]):
    """Classes with a fault; ``subject`` makes the subject of a class."""

    def __init__(self, subject: Callable[[Any], ConformanceSubject[Any]]) -> None:
        super().__init__()
        self.subject = subject

    def caught_by(self, *laws: str) -> Callable[[T], T]:
        """Register a class whose name describes its fault."""

        def seed(kind: T) -> T:
            self.extend(Fault(kind.__name__, law, self.subject(kind)) for law in laws)
            return kind

        return seed
