"""How much of what is stored a turn wants to see: fetch callbacks are given the context alone, so it is said aside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from keelbolt.errors import InvalidValue

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Window:
    """The ``last`` so many, in the order in which they were stored; None: all of them."""

    last: int | None = None

    def __post_init__(self) -> None:
        if self.last is not None and (isinstance(self.last, bool) or not isinstance(self.last, int) or self.last < 1):
            raise InvalidValue(f"last is a whole number from 1, or None for everything, not {self.last!r}")

    def of(self, values: Sequence[T]) -> list[T]:
        """These, cut to the window."""
        return list(values) if self.last is None else list(values[-self.last :])


@dataclass(frozen=True, slots=True)
class TopK:
    """The ``k`` memories with the largest importance (or confidence), in the order in which they were stored."""

    k: int = 50
    by: Literal["importance", "confidence"] = "importance"

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InvalidValue(f"k is a whole number from 1, not {self.k!r}")
        if self.by not in ("importance", "confidence"):
            raise InvalidValue(f"by is 'importance' or 'confidence', not {self.by!r}")

    def of(self, values: Sequence[T]) -> list[T]:
        """These, cut to the best."""
        best = sorted(range(len(values)), key=lambda at: -getattr(values[at], self.by))[: self.k]
        return [values[at] for at in sorted(best)]


Limit = Window | TopK
EVERYTHING = Window()


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """What each fetch answers when nobody asks for something else; everything, unless said otherwise."""

    messages: Window = EVERYTHING
    memories: Limit = EVERYTHING
    thoughts: Window = EVERYTHING
    tool_calls: Window = EVERYTHING
    retrievables: Window = EVERYTHING
    standing_instructions: Window = EVERYTHING

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_limit(name, getattr(self, name))


def check_limit(name: str, limit: object) -> Limit:
    """A Window; a TopK only for memories, since nothing else has an importance."""
    if isinstance(limit, Window) or (isinstance(limit, TopK) and name == "memories"):
        return limit
    allowed = "a Window or a TopK" if name == "memories" else "a Window"
    raise InvalidValue(f"{name} is limited by {allowed}, not by {limit!r}")


_asked: ContextVar[Mapping[str, Limit]] = ContextVar("keelbolt_turns_asked", default={})  # noqa: B039 - never changed


@contextmanager
def asking(name: str, limit: Limit | None) -> Iterator[None]:
    """Within this, fetches of this name that know of limits answer no more than that."""
    if limit is None:
        yield
        return
    token = _asked.set({**_asked.get(), name: limit})
    try:
        yield
    finally:
        _asked.reset(token)


def asked(name: str, policy: Any) -> Limit:
    """What is asked for now, or else what the policy says."""
    limit: Limit = _asked.get().get(name) or getattr(policy, name)
    return limit
