"""JSON Schemas of modules for clients, with every ``$ref`` inlined; whole numbers and samples by a schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

Schema = dict[str, Any]
RootType = Literal["string", "object", "unknown"]

MAX_NODES = 20_000  # of one schema: mutually recursive definitions grow without bound
TEXT = "text"  # key under which apcore's steps see the input or output of a module whose schema is a string
FILE_FORMATS = frozenset({"binary", "byte", "base64"})


class SchemaConverter:
    """Inlines references and detects root types."""

    def convert_input_schema(self, descriptor: Any) -> Schema:
        """Return the self-contained input schema of a module."""
        return self._converted(getattr(descriptor, "input_schema", None))

    def convert_output_schema(self, descriptor: Any) -> Schema:
        """Return the self-contained output schema of a module."""
        return self._converted(getattr(descriptor, "output_schema", None))

    def _converted(self, schema: Any) -> Schema:
        if not isinstance(schema, Mapping) or not schema:
            return {}
        found = inline(schema)
        if "type" not in found and not any(word in found for word in ("anyOf", "oneOf", "allOf", "enum", "const")):
            found["type"] = "object"
        return found

    def detect_root_type(self, schema: Mapping[str, Any] | None) -> RootType:
        """Return 'string', 'object', or 'unknown'."""
        declared = (schema or {}).get("type")
        if declared == "string":
            return "string"
        return "object" if declared == "object" or (schema and "properties" in schema) else "unknown"


def inline(schema: Mapping[str, Any]) -> Schema:
    """Return the schema with its definitions inlined.

    A recursive definition (a tree, a list of lists) can't be inlined forever: at its recurrence it becomes an object
    with only its type and title. The same applies after MAX_NODES nodes.
    """
    return _Inliner(schema).root()


class _Inliner:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._root = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
        self._nodes = 0

    def root(self) -> Schema:
        return dict(self._walk(self._root, ()))

    def _walk(self, node: Any, within: tuple[str, ...]) -> Any:
        self._nodes += 1
        if isinstance(node, Mapping):
            reference = node.get("$ref")
            if isinstance(reference, str):
                return self._refer(reference, node, within)
            return {key: self._walk(value, within) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [self._walk(item, within) for item in node]
        return node

    def _refer(self, reference: str, node: Mapping[str, Any], within: tuple[str, ...]) -> Any:
        beside = {key: self._walk(value, within) for key, value in node.items() if key != "$ref"}
        target = self._find(reference)
        if target is None:
            return {"description": f"refers to {reference[:200]}, which is not part of this schema", **beside}
        if reference in within or self._nodes > MAX_NODES:
            about = {key: target[key] for key in ("type", "title") if key in target}
            return {**about, "description": "recursive: the same schema again", **beside}
        found = self._walk(target, (*within, reference))
        return {**found, **beside} if isinstance(found, dict) else found

    def _find(self, reference: str) -> Mapping[str, Any] | None:
        """Return the target of a JSON pointer within this schema, or None."""
        if reference == "#":
            return self._root
        if not reference.startswith("#/"):
            return None
        found: Any = self._schema
        for step in [part.replace("~1", "/").replace("~0", "~") for part in reference[2:].split("/")]:
            if not isinstance(found, Mapping) or step not in found:
                return None
            found = found[step]
        return found if isinstance(found, Mapping) else None


def properties_of(schema: Mapping[str, Any]) -> dict[str, Schema]:
    """Return the named properties of an object schema."""
    found = schema.get("properties")
    if not isinstance(found, Mapping):
        return {}
    return {name: dict(value) for name, value in found.items() if isinstance(value, Mapping)}


def is_text(schema: Mapping[str, Any]) -> bool:
    """Return whether this is the schema of a string."""
    return schema.get("type") == "string"


def text_property(schema: Mapping[str, Any]) -> str | None:
    """Return the property for plain text, or None: the only non-file or only required property, if it is a string."""
    properties = {name: about for name, about in properties_of(schema).items() if not is_file(about)}
    required = [name for name in schema.get("required", ()) if name in properties]
    names = list(properties) if len(properties) == 1 else required
    return names[0] if len(names) == 1 and "string" in types_of(properties[names[0]]) else None


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that a schema and its alternatives name."""
    declared = schema.get("type")
    found = {declared} if isinstance(declared, str) else set(declared or ())
    for word in ("anyOf", "oneOf"):
        for choice in schema.get(word, ()):
            if isinstance(choice, Mapping):
                found |= types_of(choice)
    return frozenset(found)


def is_file(schema: Mapping[str, Any]) -> bool:
    """Return whether a property takes a file: bytes, or an object with bytes or a URI."""
    for choice in alternatives(schema):
        if choice.get("format") in FILE_FORMATS or "contentEncoding" in choice or "contentMediaType" in choice:
            return True
        if "object" in types_of(choice) and {"uri", "bytes"} & set(properties_of(choice)):
            return True
    return False


def alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the alternatives of a schema, or the schema itself if it has none."""
    found = [choice for word in ("anyOf", "oneOf") for choice in schema.get(word, ()) if isinstance(choice, Mapping)]
    return found or [schema]


# -------------------------------------------------------------------------------------------------------- whole numbers


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
            wanted += [each for pattern, each in patterns.items() if _found(pattern, name)]
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


def _found(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # of a dialect that Python does not have; the validation decides
        return False


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


# -------------------------------------------------------------------------------------------------------------- samples


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
