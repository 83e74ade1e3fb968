"""Whole numbers: 3.0 becomes 3 where a schema only takes integers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

EXACT = 2**53  # above it a float may represent several integers
MAX_VISITS = 200_000  # of values times alternatives: nested unions multiply
MAX_DEPTH = 200  # of nested definitions; a definition may refer only to itself

_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}


def fitted(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return the value with whole floats as integers where the schema requires integers; other values stay.

    Some wire formats have no integers (protobuf's Struct, which the official SDK uses), and apcore refuses 3.0 as an
    integer. Parts that don't match the schema stay unchanged; the validation reports them.
    """
    return _Fit(schema).fit(value, schema)[0]


class _Fit:
    """Each method returns the fitted value (the same object if unchanged) and whether it matches the schema.

    The match covers only keywords that distinguish alternatives: types, constants, required and additional properties,
    tuple lengths. The validation checks the rest.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._visits = 0
        self._depth = 0

    def fit(self, value: Any, schema: Any) -> tuple[Any, bool]:
        self._visits += 1
        if self._visits > MAX_VISITS or self._depth > MAX_DEPTH or not isinstance(schema, Mapping):
            return value, schema is not False
        self._depth += 1
        try:
            return self._fit(value, schema)
        finally:
            self._depth -= 1

    def _fit(self, value: Any, schema: Mapping[str, Any]) -> tuple[Any, bool]:
        good = True
        if isinstance(reference := schema.get("$ref"), str):
            value, good = self.fit(value, self._find(reference))
        for each in schema.get("allOf", ()):
            value, also = self.fit(value, each)
            good = good and also
        for word in ("anyOf", "oneOf"):
            if word in schema:
                value, also = self._choose(value, schema[word])
                good = good and also
        if "const" in schema or "enum" in schema:
            value, also = _member(value, [schema["const"]] if "const" in schema else schema["enum"])
            good = good and also
        if "type" in schema:
            value, also = _typed(value, schema["type"])
            good = good and also
        if isinstance(value, dict):
            value, also = self._object(value, schema)
        elif isinstance(value, list):
            value, also = self._array(value, schema)
        else:
            return value, good
        return value, good and also

    def _choose(self, value: Any, choices: Iterable[Any]) -> tuple[Any, bool]:
        """Fit the value to the first alternative that accepts it unchanged, or else to the first that accepts it."""
        near: list[Any] = []
        changed: list[Any] = []
        for choice in choices:
            found, good = self.fit(value, choice)
            if good and found is value:
                return value, True
            (changed if good else near).append(found)
        if changed:
            return changed[0], True
        near = [found for found in near if found is not value]
        return (near[0] if len(near) == 1 else value), False

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        properties = schema.get("properties") or {}
        patterns = schema.get("patternProperties") or {}
        others = schema.get("additionalProperties", True)
        good = all(name in value for name in schema.get("required", ()))
        found: dict[str, Any] = {}
        for name, item in value.items():
            wanted = [properties[name]] if name in properties else []
            wanted += [each for pattern, each in patterns.items() if re.search(pattern, name)]
            for each in wanted or [others]:
                item, also = self.fit(item, each)  # noqa: PLW2901
                good = good and also
            found[name] = item
        same = all(found[name] is item for name, item in value.items())
        return (value if same else found), good

    def _array(self, value: list[Any], schema: Mapping[str, Any]) -> tuple[list[Any], bool]:
        items = schema.get("items", True)
        first = items if isinstance(items, list) else schema.get("prefixItems", ())
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        good = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        found = []
        for number, item in enumerate(value):
            fit, also = self.fit(item, first[number] if number < len(first) else rest)
            good = good and also
            found.append(fit)
        same = all(new is old for new, old in zip(found, value, strict=True))
        return (value if same else found), good

    def _find(self, reference: str) -> Any:
        """Return the target of a JSON pointer within the schema; an external schema accepts everything."""
        if reference == "#":
            return self._root
        found: Any = self._root
        for step in reference.removeprefix("#/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                return True
            found = found[name]
        return found


def _typed(value: Any, declared: Any) -> tuple[Any, bool]:
    types = {declared} if isinstance(declared, str) else set(declared)
    kind = "null" if value is None else _JSON_TYPES.get(type(value), "string")  # bytes count as a string
    if kind in types or (kind == "integer" and "number" in types):
        return value, True
    if kind == "number" and "integer" in types and value.is_integer() and abs(value) <= EXACT:
        return int(value), True
    return value, False


def _member(value: Any, members: Any) -> tuple[Any, bool]:
    """Return the member that equals the value; 1 equals 1.0, and not True."""
    for member in members:
        if member == value and isinstance(member, bool) == isinstance(value, bool):
            return (value if type(member) is type(value) else member), True
    return value, False
