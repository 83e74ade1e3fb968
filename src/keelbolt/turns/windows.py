"""Limits of fetches. Fetch callbacks only get the context, so limits are passed in a context variable."""

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
    """The ``last`` n values in storage order; None: all of them."""

    last: int | None = None

    def __post_init__(self) -> None:
        if self.last is not None and (isinstance(self.last, bool) or not isinstance(self.last, int) or self.last < 1):
            raise InvalidValue(f"last must be an integer of at least 1, or None for all, not {self.last!r}")

    def of(self, values: Sequence[T]) -> list[T]:
        """Return the values within the window."""
        return list(values) if self.last is None else list(values[-self.last :])


@dataclass(frozen=True, slots=True)
class TopK:
    """The ``k`` memories with the highest importance (or confidence), in storage order."""

    k: int = 50
    by: Literal["importance", "confidence"] = "importance"

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InvalidValue(f"k must be an integer of at least 1, not {self.k!r}")
        if self.by not in ("importance", "confidence"):
            raise InvalidValue(f"by must be 'importance' or 'confidence', not {self.by!r}")

    def of(self, values: Sequence[T]) -> list[T]:
        """Return the best values."""
        best = sorted(range(len(values)), key=lambda at: -getattr(values[at], self.by))[: self.k]
        return [values[at] for at in sorted(best)]


Limit = Window | TopK
EVERYTHING = Window()


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """The default limit of each fetch; without one, everything."""

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
    """Return the limit if it is a Window, or, only for memories, a TopK: other kinds have no importance."""
    if isinstance(limit, Window) or (isinstance(limit, TopK) and name == "memories"):
        return limit
    allowed = "a Window or a TopK" if name == "memories" else "a Window"
    raise InvalidValue(f"the limit of {name} must be {allowed}, not {limit!r}")


_asked: ContextVar[Mapping[str, Limit]] = ContextVar("keelbolt_turns_asked", default={})  # noqa: B039 - never changed


@contextmanager
def asking(name: str, limit: Limit | None) -> Iterator[None]:
    """Limit fetches of this name within the block, for adapters that support limits."""
    if limit is None:
        yield
        return
    token = _asked.set({**_asked.get(), name: limit})
    try:
        yield
    finally:
        _asked.reset(token)


def asked(name: str, policy: Any) -> Limit:
    """Return the current limit, or else the policy's."""
    limit: Limit = _asked.get().get(name) or getattr(policy, name)
    return limit
