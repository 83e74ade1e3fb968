"""Immutable plain data for primitives, so that they can't differ from the stored version.

`FrozenDict` and `FrozenList` are a dict and a list to every reader (``json``, pydantic, ``==``). Copies of them, by
``copy``, ``deepcopy`` or ``pickle``, are a plain, mutable dict and list.
"""

from __future__ import annotations

import copy
from typing import Any, NoReturn

REFUSED = "a primitive can't be changed; make a changed copy with dataclasses.replace, and store it with ctx.mutate_…"
_LEAVES = (str, int, float, bool, bytes, type(None))


class FrozenDict(dict[Any, Any]):
    """An immutable dict."""

    __slots__ = ()

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, _memo: object) -> Any:
        return thawed(self)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class FrozenList(list[Any]):
    """An immutable list."""

    __slots__ = ()

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, _memo: object) -> Any:
        return thawed(self)

    def __reduce__(self) -> Any:
        return list, (list(self),)


def _refuse(_self: object, *_args: object, **_fields: object) -> NoReturn:
    raise TypeError(REFUSED)


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(FrozenDict, _name, _refuse)
for _name in (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__"),
    *("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"),
):
    setattr(FrozenList, _name, _refuse)


def frozen(value: Any) -> Any:
    """Return an immutable copy, as far as it consists of dicts, lists, tuples and sets; other values are copied."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, dict):
        return FrozenDict({key: frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return FrozenList([frozen(item) for item in value])
    if type(value) is tuple:
        return tuple(frozen(item) for item in value)
    if isinstance(value, set | frozenset):
        return frozenset(value)
    return copy.deepcopy(value)


def thawed(value: Any) -> Any:
    """Return a mutable copy of a frozen value."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, dict):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thawed(item) for item in value]
    if type(value) is tuple:
        return tuple(thawed(item) for item in value)
    return copy.deepcopy(value)
