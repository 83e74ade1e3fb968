"""The ordered sets of a turn. They are changed in place, so that all users of a set see the changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from keelbolt.turns.primitives import Tokenizable


class Identified(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Identified)


class PrimitiveSet(Generic[T]):
    """Primitives in insertion order. `add` does not check for equal ids.

    Iteration uses a snapshot, so the set may be changed meanwhile.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: dict[int, T] = {id(item): item for item in items}  # by ``id()``, not by their ids

    def add(self, item: T) -> None:
        """Append the item; the same object is held only once."""
        self._items[_identity(item)] = item

    def discard(self, item: T) -> None:
        """Remove this object, if it is present."""
        self._items.pop(_identity(item), None)

    def clear(self) -> None:
        self._items.clear()

    def get(self, id: str) -> T | None:  # noqa: A002
        """Return the first item with this id, or None."""
        return next((item for item in self._items.values() if item.id == id), None)

    def replace_by_id(self, item: T) -> list[T]:
        """Replace the first item of the same id, remove all others of that id, or append if there is none.

        Return the removed items.
        """
        held = list(self)
        taken = [other for other in held if other.id == item.id]
        if not taken:
            self.add(item)
            return taken
        self._items.clear()
        for other in held:
            if other.id != item.id:
                self.add(other)
            elif other is taken[0]:
                self.add(item)
        return taken

    def put_in_place(self, old: T, new: T) -> None:
        """Replace this object by a new one at its position."""
        self._items = {_identity(item): item for item in (new if held is old else held for held in self)}

    def remove_by_id(self, id: str) -> T | None:  # noqa: A002
        """Remove and return the first item with this id, or return None."""
        found = self.get(id)
        if found is not None:
            self.discard(found)
        return found

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: object) -> bool:
        return _identity(item) in self._items

    def __repr__(self) -> str:
        return f"PrimitiveSet({list(self)!r})"


_identity = id  # parameters named id shadow it


class InstructionSet:
    """Standing instructions in order. Identified by their key, or without one by their text; a str is a text.

    Added instructions are copied, so that later changes to the originals have no effect.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[str | Tokenizable] = ()) -> None:
        self._items: list[Tokenizable] = []
        for item in items:
            self.add(item)

    def add(self, item: str | Tokenizable) -> None:
        """Append it, unless it is present."""
        if self._place(item) is None:
            self._items.append(Tokenizable.of(item).copy())

    def replace(self, item: str | Tokenizable) -> None:
        """Replace the instruction with the same key; add it if it has no key or none matches."""
        place = self._place(item)
        if place is None:
            self.add(item)
        else:
            self._items[place] = Tokenizable.of(item).copy()

    def discard(self, item: str | Tokenizable) -> None:
        """Remove it if it is present, or else the last one with the same text, regardless of its key."""
        place = self._place(item)
        if place is None:
            place = self._saying(str(item))
        if place is not None:
            del self._items[place]

    def clear(self) -> None:
        self._items.clear()

    def texts(self) -> list[str]:
        return [str(item) for item in self._items]

    def _place(self, item: str | Tokenizable) -> int | None:
        known = _known_by(item)
        return next((index for index, held in enumerate(self._items) if _known_by(held) == known), None)

    def _saying(self, text: str) -> int | None:
        return max((index for index, held in enumerate(self._items) if str(held) == text), default=None)

    def __iter__(self) -> Iterator[Tokenizable]:
        return iter(list(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, str | Tokenizable):
            return False
        return self._place(item) is not None or self._saying(str(item)) is not None

    def __repr__(self) -> str:
        return f"InstructionSet({self._items!r})"


def _known_by(item: str | Tokenizable) -> tuple[str | None, str | None]:
    key = item.key if isinstance(item, Tokenizable) else None
    return (None, str(item)) if key is None else (key, None)
