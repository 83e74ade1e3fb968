"""Schemas: inlined references, bounded recursion, and the input types that a module accepts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from keelbolt.apcore.schemas import SchemaConverter, inline, is_file, text_property


class Leaf(BaseModel):
    name: str


class Tree(BaseModel):
    leaf: Leaf
    children: list[Tree] = []


class Both(BaseModel):
    left: Tree
    right: Leaf | None = None
    kind: Literal["a", "b"] = "a"


def descriptor(schema: Any) -> Any:
    return SimpleNamespace(module_id="m", input_schema=schema, output_schema=schema)


def test_references_are_inlined_and_definitions_gone() -> None:
    found = SchemaConverter().convert_input_schema(descriptor(Both.model_json_schema()))
    assert "$ref" not in json.dumps(found)
    assert "$defs" not in found
    assert found["properties"]["right"]["anyOf"][0]["properties"]["name"]["type"] == "string"
    assert found["type"] == "object"


def test_a_recursive_schema_is_bounded() -> None:
    found = SchemaConverter().convert_output_schema(descriptor(Tree.model_json_schema()))
    text = json.dumps(found)
    assert "$ref" not in text
    assert "recursive" in text
    assert len(text) < 5000


def test_definitions_that_grow_exponentially_are_bounded() -> None:
    defs = {
        f"d{n}": {"type": "object", "properties": {s: {"$ref": f"#/$defs/d{n + 1}"} for s in "ab"}} for n in range(40)
    }
    defs["d40"] = {"type": "string"}
    found = inline({"$defs": defs, "$ref": "#/$defs/d0"})
    assert "$ref" not in json.dumps(found)
    assert len(json.dumps(found)) < 10_000_000


def test_the_schema_is_not_changed() -> None:
    schema = Both.model_json_schema()
    before = json.dumps(schema)
    inline(schema)
    assert json.dumps(schema) == before


def test_unresolvable_references_are_described() -> None:
    found = inline({"properties": {"a": {"$ref": "https://elsewhere.example/x.json"}, "b": {"$ref": "#/$defs/no"}}})
    assert "not part of this schema" in found["properties"]["a"]["description"]
    assert "not part of this schema" in found["properties"]["b"]["description"]


def test_a_property_may_be_called_definitions() -> None:
    schema = {"type": "object", "properties": {"definitions": {"type": "string"}, "$defs": {"type": "integer"}}}
    assert inline(schema) == schema


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "string"}, "string"),
        ({"type": "object"}, "object"),
        ({"properties": {}}, "object"),
        ({"type": "array"}, "unknown"),
        ({}, "unknown"),
        (None, "unknown"),
    ],
)
def test_root_types(schema: Any, wanted: str) -> None:
    assert SchemaConverter().detect_root_type(schema) == wanted


@pytest.mark.parametrize("schema", [None, {}, "no schema"])
def test_a_missing_schema_is_an_empty_schema(schema: Any) -> None:
    assert SchemaConverter().convert_input_schema(descriptor(schema)) == {}


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"properties": {"text": {"type": "string"}}}, "text"),
        ({"properties": {"text": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, "text"),
        ({"properties": {"text": {"type": "string"}, "n": {"type": "integer"}}, "required": ["text"]}, "text"),
        ({"properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}, None),
        ({"properties": {"n": {"type": "integer"}}}, None),
        ({"properties": {"file": {"type": "string", "format": "binary"}}}, None),
        ({}, None),
    ],
)
def test_property_for_plain_text(schema: Any, wanted: str | None) -> None:
    assert text_property(schema) == wanted


def test_files() -> None:
    class Files(BaseModel):
        content: bytes
        text: str

    properties = Files.model_json_schema()["properties"]
    assert is_file(properties["content"])
    assert not is_file(properties["text"])


def test_unused_definitions_do_not_count() -> None:
    """Definitions of a schema that is itself a reference are counted only where they are used."""
    links = {f"D{n}": {"type": "object", "properties": {"next": {"$ref": f"#/$defs/D{n + 1}"}}} for n in range(120)}
    found = inline({"$ref": "#/$defs/D0", "$defs": {**links, "D120": {"type": "string"}}})
    assert found["properties"]["next"]["properties"]["next"]["type"] == "object"
    assert "recursive" not in json.dumps(found)


def test_a_reference_to_the_whole_schema_brings_no_definitions() -> None:
    found = inline({"type": "object", "properties": {"child": {"$ref": "#"}}, "$defs": {"Unused": {"type": "string"}}})
    assert "$defs" not in json.dumps(found)
