"""Floats with whole values become integers where a schema has integers."""

from __future__ import annotations

import json
import types
from enum import IntEnum
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from keelbolt.apcore.schemas import fitted
from keelbolt.protocol.types import Metadata


class Tree(BaseModel):
    weight: int
    children: list[Tree] = []
    by_name: dict[str, Tree] = {}


class Cat(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    weight: float
    puppies: list[Cat | Dog | int] = []


class Level(IntEnum):
    low = 1
    high = 2


class Point(NamedTuple):
    x: int
    y: float


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Everything(BaseModel):
    scores: dict[str, int] = {}
    pair: tuple[int, str, float] | None = None
    point: Point | None = None
    pets: list[Pet] = []
    several: list[int | str | None] = []
    tree: Tree | None = None
    level: Level = Level.low
    fixed: Literal[1, 2, "x"] = 1
    either: Cat | Dog | None = None
    nested: dict[str, list[dict[str, int | None]]] = {}
    rate: float = 0.0
    number: int | float = 0
    free: Any = None


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"scores": {"a": 3.0}}, {"scores": {"a": 3}}),
        ({"pair": [1.0, "x", 2.0]}, {"pair": [1, "x", 2.0]}),
        ({"point": [1.0, 2.0]}, {"point": [1, 2.0]}),
        ({"pets": [{"kind": "cat", "lives": 9.0}]}, {"pets": [{"kind": "cat", "lives": 9}]}),
        ({"pets": [{"kind": "dog", "weight": 9.0}]}, {"pets": [{"kind": "dog", "weight": 9.0}]}),
        ({"several": [1.0, "x", None]}, {"several": [1, "x", None]}),
        ({"tree": {"weight": 1.0, "children": [{"weight": 2.0, "children": [{"weight": 3.0}]}]}}, None),
        ({"tree": {"weight": 1.0, "by_name": {"a": {"weight": 2.0}}}}, None),
        ({"level": 2.0, "fixed": 1.0}, {"level": 2, "fixed": 1}),
        ({"either": {"kind": "cat", "lives": 9.0}}, {"either": {"kind": "cat", "lives": 9}}),
        ({"either": {"kind": "dog", "weight": 1.0, "puppies": [{"kind": "cat", "lives": 1.0}, 2.0]}}, None),
        ({"nested": {"a": [{"b": 1.0, "c": None}]}}, {"nested": {"a": [{"b": 1, "c": None}]}}),
        ({"rate": 3.0, "number": 3.0, "free": [3.0]}, {"rate": 3.0, "number": 3.0, "free": [3.0]}),
    ],
)
def test_whole_numbers_fit(given: Any, wanted: Any) -> None:
    found = fitted(given, Everything.model_json_schema())
    Everything.model_validate_json(json.dumps(found), strict=True)
    if wanted is not None:
        assert json.dumps(found) == json.dumps(wanted)  # 3 and 3.0 are equal; their texts are not


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"scores": {"a": 3.0, "b": "x", "c": 2.5}}, {"scores": {"a": 3, "b": "x", "c": 2.5}}),
        ({"several": [2.0, 2.5, {}]}, {"several": [2, 2.5, {}]}),
        ({"scores": {"a": 2.0**60}}, {"scores": {"a": 2.0**60}}),
        ({"pets": [{"kind": "cow", "lives": 1.0}]}, None),
        ({"unknown": 3.0}, {"unknown": 3.0}),
    ],
)
def test_values_that_do_not_match_are_left_to_validation(given: Any, wanted: Any) -> None:
    found = fitted(given, Everything.model_json_schema())
    assert found == given
    if wanted is not None:
        assert json.dumps(found) == json.dumps(wanted)


# -------------------------------------------------------------------------------------------------- generated schemas

Kind = tuple[Any, st.SearchStrategy[Any]]
WORDS = st.sampled_from(["a", "b", "c", "d"])
LEAVES: list[Kind] = [
    (int, st.integers(-(2**53), 2**53)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, st.text(max_size=3)),
    (bool, st.booleans()),
    (Literal[1, 2], st.sampled_from([1, 2])),
    (Tree, st.builds(lambda n: {"weight": n, "children": [{"weight": n}]}, st.integers(0, 9))),
    (Pet, st.builds(lambda n: {"kind": "cat", "lives": n}, st.integers(0, 9))),
]


def _lists(inner: Kind) -> Kind:
    return types.GenericAlias(list, (inner[0],)), st.lists(inner[1], max_size=3)


def _dicts(inner: Kind) -> Kind:
    return types.GenericAlias(dict, (str, inner[0])), st.dictionaries(WORDS, inner[1], max_size=3)


def _options(inner: Kind) -> Kind:
    return Optional[inner[0]], st.none() | inner[1]  # noqa: UP045


def _tuples(first: Kind, second: Kind) -> Kind:
    return types.GenericAlias(tuple, (first[0], second[0])), st.tuples(first[1], second[1]).map(list)


def _unions(first: Kind, second: Kind) -> Kind:
    return Union[first[0], second[0]], first[1] | second[1]  # noqa: UP007


def _models(fields: dict[str, Kind], extra: Any) -> Kind:
    named: Any = {name: (kind[0], ...) for name, kind in fields.items()}
    made = create_model("Made", __config__=ConfigDict(extra=extra), **named)
    return made, st.fixed_dictionaries({name: kind[1] for name, kind in fields.items()})


KINDS: st.SearchStrategy[Kind] = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(_lists, inner),
        st.builds(_dicts, inner),
        st.builds(_options, inner),
        st.builds(_tuples, inner, inner),
        st.builds(_unions, inner, inner),
        st.builds(
            _models, st.dictionaries(WORDS, inner, min_size=1, max_size=3), st.sampled_from(["forbid", "ignore"])
        ),
    ),
    max_leaves=6,
)


def floats(value: Any) -> Any:
    """Return the value as JSON without integers carries it."""
    if isinstance(value, dict):
        return {name: floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [floats(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@given(st.data())
def test_valid_inputs_stay_valid_without_integers(data: st.DataObject) -> None:
    kind, values = data.draw(KINDS)
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    value = data.draw(values)
    adapter.validate_json(json.dumps(value), strict=True)  # it is valid
    found = fitted(floats(value), adapter.json_schema())
    assert found == value
    adapter.validate_json(json.dumps(found), strict=True)


def test_nested_unions_are_bounded() -> None:
    """Nested alternatives multiply; beyond a limit the value is returned unchanged."""
    schema: Metadata = {"$defs": {"x": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/x"}}] * 8}}}
    value: Any = "no array"
    for _ in range(40):
        value = [value]
    assert fitted(value, {**schema, "$ref": "#/$defs/x"}) == value


@pytest.mark.parametrize("inner", [{"$ref": "#/$defs/x"}, {"anyOf": [{"$ref": "#/$defs/x"}]}, {"$ref": "#"}])
def test_a_definition_that_refers_only_to_itself_is_bounded(inner: Any) -> None:
    assert fitted({"a": 3.0}, {"$defs": {"x": inner}, "$ref": "#/$defs/x"}) == {"a": 3.0}


def test_a_pattern_of_another_dialect_matches_nothing() -> None:
    schema = {"patternProperties": {r"^\p{L}+$": {"type": "integer"}}}
    assert fitted({"a": 1.0}, schema) == {"a": 1.0}
