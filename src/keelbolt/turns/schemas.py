"""Schemas for values: the arguments of tools, the answers at gates.

A schema is a pydantic model, a pydantic `TypeAdapter`, a plain JSON Schema (a dict), or a function that returns the
converted value or raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

Schema: TypeAlias = "type[BaseModel] | TypeAdapter[Any] | Mapping[str, Any] | Callable[[Any], Any]"
Check: TypeAlias = Callable[[Any], Any]

_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
    "array": lambda value: isinstance(value, list | tuple),
    "object": lambda value: isinstance(value, Mapping),
}
_LIMITS: dict[str, tuple[type | tuple[type, ...], Callable[[Any, Any], bool], str]] = {
    "minimum": ((int, float), lambda value, limit: value >= limit, "at least"),
    "maximum": ((int, float), lambda value, limit: value <= limit, "at most"),
    "exclusiveMinimum": ((int, float), lambda value, limit: value > limit, "more than"),
    "exclusiveMaximum": ((int, float), lambda value, limit: value < limit, "less than"),
    "minLength": (str, lambda value, limit: len(value) >= limit, "of length at least"),
    "maxLength": (str, lambda value, limit: len(value) <= limit, "of length at most"),
    "pattern": (str, lambda value, limit: re.search(limit, value) is not None, "a match of"),
    "minItems": ((list, tuple), lambda value, limit: len(value) >= limit, "of length at least"),
    "maxItems": ((list, tuple), lambda value, limit: len(value) <= limit, "of length at most"),
}
_generated: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()  # a model request needs the schemas of all tools
_FORMS = ("anyOf", "allOf", "oneOf")
_DEFINED = ("$defs", "definitions")
_STRUCTURE = {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "$ref"}
_STRUCTURE |= {*_FORMS, *_DEFINED}
_LISTS = ("required", "enum", *_FORMS)
_NOTES = {"$schema", "$id", "$comment", "title", "description", "default", "examples", "format", "deprecated"}
_NOTES |= {"discriminator"}


def checker(schema: Schema) -> Check:
    """Return a function that validates and converts values. Raise ValueError if this schema is not supported."""
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return _explained(schema.model_validate)
    if isinstance(schema, TypeAdapter):
        return _explained(schema.validate_python)
    if isinstance(schema, Mapping):
        _understood(schema, "schema", schema)
        return lambda value: _checked(schema, value)
    if callable(schema) and not isinstance(schema, type):
        return schema
    raise ValueError(f"a schema must be a pydantic model, a TypeAdapter, a JSON Schema or a function, not {schema!r}")


def json_schema(schema: Schema) -> dict[str, Any] | None:
    """Return the JSON Schema for a language model; None if the schema is a function."""
    found: dict[str, Any]
    if isinstance(schema, TypeAdapter) or (isinstance(schema, type) and issubclass(schema, BaseModel)):
        if (text := _generated.get(schema)) is None:
            made = schema.json_schema() if isinstance(schema, TypeAdapter) else schema.model_json_schema()
            text = _generated[schema] = to_json(made)
        found = from_json(text)
    elif isinstance(schema, Mapping):
        found = dict(schema)
    else:
        return None
    while "$ref" in found and "type" not in found:  # a recursive model: providers require an object at the top
        whole = _referred(found, found, "schema")
        found = {**{name: value for name, value in found.items() if name != "$ref"}, **whole}
    return found


def _explained(check: Check) -> Check:
    def explained(value: Any) -> Any:
        try:
            return check(value)
        except ValidationError as wrong:
            places = [(".".join(map(str, one["loc"])) or "value", one["msg"]) for one in wrong.errors()]
            raise ValueError("; ".join(f"{place}: {words}" for place, words in places)) from wrong

    return explained


def _understood(schema: Any, place: str, root: Mapping[str, Any]) -> None:
    """Raise ValueError for unsupported keywords, instead of ignoring them."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise ValueError(f"{place} must be a dict, not {type(schema).__name__}")  # noqa: TRY004
    if unknown := [name for name in schema if name not in {*_STRUCTURE, *_LIMITS, *_NOTES}]:
        raise ValueError(f"{place} uses {unknown[0]!r}, which is not supported; use a pydantic model or a function")
    kinds = schema.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind not in _TYPES:
            raise ValueError(f"{place} has the unknown type {kind!r}; types are {', '.join(_TYPES)}")
    _well_formed(schema, place)
    inner, seen = schema, set[str]()
    while isinstance(inner, Mapping) and "$ref" in inner:
        if str(inner["$ref"]) in seen:
            raise ValueError(f"{place} refers to {inner['$ref']!r}, which refers to itself")
        seen.add(str(inner["$ref"]))
        inner = _referred(inner, root, place)
    for group in ("properties", *_DEFINED):
        for name, inner in schema.get(group, {}).items():
            _understood(inner, f"{place}.{name}", root)
    for name in ("items", "additionalProperties"):
        if name in schema:
            _understood(schema[name], f"{place}.{name}", root)
    for name in _FORMS:
        for inner in schema.get(name, ()):
            _understood(inner, f"{place}.{name}", root)


def _referred(schema: Mapping[str, Any], root: Mapping[str, Any], place: str) -> Any:
    """Return the schema that ``$ref`` names: a definition of the same schema."""
    for group in _DEFINED:
        name = str(schema["$ref"]).removeprefix(f"#/{group}/").replace("~1", "/").replace("~0", "~")
        if str(schema["$ref"]).startswith(f"#/{group}/") and name in root.get(group, {}):
            return root[group][name]
    raise ValueError(f"{place} refers to {schema['$ref']!r}, which is not among the $defs of the schema")


def _well_formed(schema: Mapping[str, Any], place: str) -> None:
    for name in _LISTS:
        if not isinstance(schema.get(name, []), list | tuple):
            raise ValueError(f"{place}.{name} must be a list, not {type(schema[name]).__name__}")  # noqa: TRY004
    for name in ("properties", *_DEFINED):
        if not isinstance(schema.get(name, {}), Mapping):
            raise ValueError(f"{place}.{name} must be a dict, not {type(schema[name]).__name__}")  # noqa: TRY004
    for name in _LIMITS:
        if name in schema and name != "pattern" and not _TYPES["number"](schema[name]):
            raise ValueError(f"{place}.{name} must be a number, not {schema[name]!r}")
    try:
        re.compile(schema.get("pattern", ""))
    except (re.error, TypeError) as wrong:
        raise ValueError(f"{place}.pattern is not a regular expression: {wrong}") from None


def _same(one: object, other: object) -> bool:
    """Return whether two values are equal as JSON, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _checked(schema: Mapping[str, Any], value: Any) -> Any:
    if problem := _problem(schema, value, "value", schema):
        raise ValueError(problem)
    return value


def _problem(schema: Any, value: Any, place: str, root: Mapping[str, Any]) -> str | None:
    if isinstance(schema, bool):
        return None if schema else f"{place}: is not allowed"
    if "$ref" in schema and (problem := _problem(_referred(schema, root, place), value, place, root)):
        return problem
    kinds = schema.get("type")
    wanted = [kinds] if isinstance(kinds, str) else kinds
    if wanted and not any(_TYPES[kind](value) for kind in wanted):
        return f"{place}: must be {' or '.join(wanted)}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return f"{place}: must be one of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and not _same(value, schema["const"]):
        return f"{place}: must be {schema['const']!r}"
    for name, (kind, holds, words) in _LIMITS.items():
        if (
            name in schema
            and isinstance(value, kind)
            and not isinstance(value, bool)
            and not holds(value, schema[name])
        ):
            return f"{place}: must be {words} {schema[name]}"
    if isinstance(value, list | tuple) and "items" in schema:
        found = _first(_problem(schema["items"], item, f"{place}[{index}]", root) for index, item in enumerate(value))
        if found:
            return found
    for inner in schema.get("allOf", ()):
        if problem := _problem(inner, value, place, root):
            return problem
    if "anyOf" in schema and all(_problem(inner, value, place, root) for inner in schema["anyOf"]):
        return f"{place}: must match one of its schemas"
    if "oneOf" in schema and sum(_problem(inner, value, place, root) is None for inner in schema["oneOf"]) != 1:
        return f"{place}: must match exactly one of its schemas"
    return _members(schema, value, place, root) if isinstance(value, Mapping) else None


def _members(schema: Mapping[str, Any], value: Mapping[str, Any], place: str, root: Mapping[str, Any]) -> str | None:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{place}.{name}: is missing"
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    return _first(_problem(known.get(name, others), item, f"{place}.{name}", root) for name, item in value.items())


def _first(problems: Any) -> str | None:
    return next((problem for problem in problems if problem), None)
