"""The stash: a nested dict that is read and written by paths."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from keelbolt.errors import InvalidInitialRegistryValue
from keelbolt.turns.primitives.values import REFUSED


class Registry:
    """Values by dotted paths: ``set("user.name", "Ann")`` is ``{"user": {"name": "Ann"}}``.

    All values are copied on write and read, so that outside changes have no effect. A dot always separates path steps:
    the key of ``Registry({"a.b": 1})`` is stored and returned by `all`, but ``get("a.b")`` looks for b in a and does
    not find it.
    """

    __slots__ = ("_frozen", "_values")

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        if values is not None and not isinstance(values, dict):
            raise InvalidInitialRegistryValue(f"a registry starts from a dict, not {type(values).__name__}")
        for key in values or ():
            if not isinstance(key, str):
                raise InvalidInitialRegistryValue(f"the keys of a registry must be strings, not {key!r}")
        self._values: dict[str, Any] = _copied(values or {})
        self._frozen = False

    @property
    def is_frozen(self) -> bool:
        return self._frozen

    def frozen(self) -> Registry:
        """Return a frozen copy, or this object if it is already frozen."""
        if self._frozen:
            return self
        found = Registry(self._values)
        found._frozen = True
        return found

    def get(self, key: str, default: Any = None) -> Any:
        """Return a copy of the value at this path, or the default."""
        found = self._find(key)
        return default if found is _NOTHING else copy.deepcopy(found)

    def set(self, key: str, value: Any) -> None:
        """Store a copy; missing dicts on the path are created, and other values on it are replaced by dicts.

        Raise TypeError if this registry is frozen, as the stash of media is.
        """
        if self._frozen:
            raise TypeError(REFUSED)
        *way, last = _path(key)
        kept = _copied(value)
        place = self._values
        for step in way:
            if not isinstance(place.get(step), dict):
                place[step] = {}
            place = place[step]
        place[last] = kept

    def has(self, key: str) -> bool:
        return self._find(key) is not _NOTHING

    def keys(self) -> list[str]:
        """Return the paths of all leaves; an empty dict is a leaf."""
        return list(_leaves(self._values))

    def all(self) -> dict[str, Any]:
        """Return a copy of all values."""
        return copy.deepcopy(self._values)

    def _find(self, key: str) -> Any:
        found: Any = self._values
        for step in _path(key):
            if not isinstance(found, dict) or step not in found:
                return _NOTHING
            found = found[step]
        return found

    def __getitem__(self, key: str) -> Any:
        found = self._find(key)
        if found is _NOTHING:
            raise KeyError(key)
        return copy.deepcopy(found)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key != "" and self.has(key)

    def __repr__(self) -> str:
        return f"Registry({self._values!r})"


_NOTHING = object()


def _path(key: str) -> list[str]:
    if not isinstance(key, str) or not key:
        raise KeyError(f"a path must be a non-empty str, not {key!r}")
    return key.split(".")


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as uncopied:
        raise InvalidInitialRegistryValue(
            f"a value can't be copied ({uncopied}); use plain data, and store connections elsewhere"
        ) from uncopied


def _leaves(values: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"
