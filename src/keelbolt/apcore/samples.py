"""Creates sample inputs for modules without examples, for users to paste and edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keelbolt.apcore.schemas import alternatives, properties_of, types_of

SAMPLE_DEPTH = 4
_OF_TYPE: dict[str, Any] = {"string": "Hello", "integer": 1, "number": 1, "boolean": True, "array": [], "null": None}


def sample_input(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the required properties with valid values, preferably defaults, constants or examples of the schema."""
    return _object(schema, SAMPLE_DEPTH)


def _object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = properties_of(schema)
    required = [name for name in schema.get("required", ()) if name in properties]
    return {name: _value(properties[name], depth - 1) for name in required}


def _value(schema: Mapping[str, Any], depth: int) -> Any:
    for word in ("default", "const"):
        if word in schema:
            return schema[word]
    for word in ("examples", "enum"):
        if schema.get(word):
            return schema[word][0]
    choices = alternatives(schema)
    if choices != [schema]:
        without = any(choice.get("type") == "null" for choice in choices)
        return None if without and "object" in types_of(choices[0]) else _value(choices[0], depth)
    kinds = types_of(schema)
    if "object" in kinds or "properties" in schema:
        return _object(schema, depth) if depth > 0 else {}
    if kinds & {"integer", "number"}:
        least = schema.get("minimum", 1)
        return least if least > 1 else min(1, schema.get("maximum", 1))
    if "string" in kinds:
        return "Hello".ljust(schema.get("minLength", 0), "!")[: schema.get("maxLength")]
    return next((_OF_TYPE[kind] for kind in sorted(kinds) if kind in _OF_TYPE), "Hello")
