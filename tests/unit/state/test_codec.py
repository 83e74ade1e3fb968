"""Stored values are loaded unchanged, and the stored form is plain JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from keelbolt.errors import InvalidState
from keelbolt.state.codec import MARK, MAX_DEPTH, canonical, decode, encode, ordered

texts = st.text(st.characters(codec=None, categories=None)) | st.sampled_from(
    [MARK, f'"{MARK}"', "NaN", "\ud83d" + "\ude00", "\ud800"]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**3000, 10**4200)
    | st.floats(allow_nan=False)
    | texts
    | st.binary()
    | st.datetimes(timezones=st.none() | st.just(UTC))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
)
keys = texts | st.integers() | st.none() | st.booleans() | st.floats(allow_nan=False) | st.tuples(texts, st.integers())
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(texts | st.integers(), max_size=3)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=12,
)


@given(values)
@settings(max_examples=300)
def test_values_survive_a_round_trip(value: Any) -> None:
    data = encode(value)
    back = decode(data)
    assert back == value
    assert _kinds(back) == _kinds(value)
    assert "NaN" not in json.dumps(json.loads(data, parse_constant=_refuse)) or "NaN" in repr(value)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _kinds(value: Any) -> Any:
    """Return the types of all values in the value: True equals 1 but has another type."""
    if isinstance(value, dict):
        return {(type(key), repr(key)): _kinds(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [_kinds(item) for item in value]
    return type(value)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_equal_values_have_one_canonical_form(value: Any) -> None:
    assert canonical(value) == canonical(_reversed(value))
    assert ordered(value) == value


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(list(value))}
    return [_reversed(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("number", [2**63, -(2**64), 10**4299, -(10**4300), 10**20_000], ids=lambda n: n.bit_length())
def test_numbers_of_any_length(number: int) -> None:
    assert decode(encode({"n": number, "also": {number}})) == {"n": number, "also": {number}}


def test_nan_survives_a_round_trip() -> None:
    back = decode(encode({"deep": [math.nan, math.inf, {"x": -math.inf}]}))
    assert math.isnan(back["deep"][0])
    assert back["deep"][1:] == [math.inf, {"x": -math.inf}]


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    a: int
    when: datetime


@dataclasses.dataclass
class Plain:
    b: bytes
    inner: Model | None = None


class Odd:
    def __str__(self) -> str:
        return "odd"


NOW = datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (Colour.RED, "red"),
        ({Colour.RED: 1}, {"red": 1}),
        (Model(a=1, when=NOW), {"a": 1, "when": NOW}),
        (Plain(b"x", Model(a=2, when=NOW)), {"b": b"x", "inner": {"a": 2, "when": NOW}}),
        (Odd(), "odd"),
        (MappingProxyType({"a": (1,)}), {"a": (1,)}),
        (bytearray(b"x"), bytearray(b"x")),
        (memoryview(b"x"), b"x"),
        ([date(2026, 1, 2), time(1, 2), timedelta(1, 2, 3)], [date(2026, 1, 2), time(1, 2), timedelta(1, 2, 3)]),
        ([uuid.UUID(int=1), Decimal("1.50")], [uuid.UUID(int=1), Decimal("1.50")]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_objects_have_a_defined_form(value: Any, back: Any) -> None:
    assert decode(encode(value)) == back


def test_another_fallback() -> None:
    assert decode(encode([Odd()], lambda value: {"kind": type(value).__name__})) == [{"kind": "Odd"}]


def test_values_that_can_not_be_stored_are_named() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(InvalidState, match="Broken can't be stored"):
        encode({"a": Broken()})
    deep: list[Any] = []
    for _ in range(MAX_DEPTH * 2):
        deep = [deep, (1,)]
    with pytest.raises(InvalidState, match="nested"):
        encode(deep)


def test_plain_json_stays_plain() -> None:
    assert encode({"a": [1, 2.5, None, True, "x"]}) == b'{"a":[1,2.5,null,true,"x"]}'


def test_the_fold_of_ambiguous_times_is_stored() -> None:
    for moment in (time(2, 30, fold=1), datetime(2026, 10, 25, 2, 30, fold=1)):  # noqa: DTZ001  (as a clock shows it)
        assert decode(encode(moment)).fold == 1
