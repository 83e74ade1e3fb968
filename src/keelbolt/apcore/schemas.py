"""JSON Schemas of modules for clients: every ``$ref`` inlined, ``$defs`` removed, the root an object."""

from __future__ import annotations

from collections.abc import Mapping
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
        self._nodes = 0

    def root(self) -> Schema:
        found = self._walk(self._schema, ())
        for word in ("$defs", "definitions"):
            found.pop(word, None)
        return dict(found)

    def _walk(self, node: Any, within: tuple[str, ...]) -> Any:
        self._nodes += 1
        if isinstance(node, Mapping):
            reference = node.get("$ref")
            if isinstance(reference, str):
                return self._refer(reference, node, within)
            return {
                key: self._walk(value, within)
                for key, value in node.items()
                if key not in ("$defs", "definitions") or within or node is not self._schema
            }
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
            return self._schema
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
