"""Declarations: bad ones are refused with a reason, good ones round-trip through storage."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keelbolt.errors import InvalidName, InvalidRequest, InvalidValue, NoIndex, NotDeclared, TooLarge
from keelbolt.kernel.declarations import CheckedCollection, Declarations, dump_fields, load_fields
from keelbolt.kernel.keys import encode
from keelbolt.kernel.records import MAX_FIELD_CHARS, NO_FIELDS, Collection, Index, Query, Scalar

TASKS = Collection(
    "tasks",
    fields={"state": str, "owner": str, "rank": int, "score": float, "open": bool},
    indexes=(Index("by_key"), Index("by_state_owner", ("state", "owner"), "rank")),
    counters=((), ("state",), ("state", "owner")),
)

# ------------------------------------------------------------------------------------------------- bad declarations

BAD: list[tuple[Any, type[InvalidRequest], str]] = [
    (Collection(""), InvalidName, "1 to 64"),
    (Collection("Tasks"), InvalidName, "a-z"),
    (Collection("9tasks"), InvalidName, "beginning with a letter"),
    (Collection("t" * 65), InvalidName, "1 to 64"),
    (Collection("tasks\n"), InvalidName, "a-z"),
    (Collection(7), InvalidName, "7"),  # type: ignore[arg-type]
    (Collection("t", fields={"State": str}), InvalidName, "field 'State'"),
    (Collection("t", fields={"at": bytes}), InvalidValue, "str, int, float or bool"),  # type: ignore[dict-item]
    (Collection("t", fields={"at": "str"}), InvalidValue, "str, int, float or bool"),  # type: ignore[dict-item]
    (Collection("t", fields=["state"]), InvalidValue, "mapping"),  # type: ignore[arg-type]
    (Collection("t", indexes=(Index("i", ("state",)),)), NotDeclared, "no field 'state'; declare it with its type"),
    (Collection("t", indexes=(Index("i", (), "rank"),)), NotDeclared, "no field 'rank'"),
    (Collection("t", indexes=(Index("I"),)), InvalidName, "index 'I'"),
    (Collection("t", indexes=("i",)), InvalidValue, "must be an Index"),  # type: ignore[arg-type]
    (Collection("t", {"s": str}, indexes=(Index("i", "s"),)), InvalidValue, r"\('state',\)"),  # type: ignore[arg-type]
    (Collection("t", {"s": str}, indexes=(Index("i", (["s"],)),)), InvalidName, "field"),  # type: ignore[arg-type]
    (Collection("t", indexes=(Index("i"), Index("i"))), InvalidValue, "two indexes of the same name"),
    (Collection("t", indexes=tuple(Index(f"i{number}") for number in range(5))), InvalidValue, "more than 4"),
    (Collection("t", counters=(("state",),)), NotDeclared, "no field 'state'"),
    (Collection("t", {"s": str}, counters=("s",)), InvalidValue, r"\('state',\)"),  # type: ignore[arg-type]
    (Collection("t", counters=((),), expiring=True), InvalidValue, "expiring"),
    ("tasks", InvalidValue, "a Collection, not str"),
    (Collection, InvalidValue, "a Collection, not type"),
    (None, InvalidValue, "not NoneType"),
]


@pytest.mark.parametrize(("family", "kind", "words"), BAD, ids=str)
def test_a_bad_declaration_is_refused(family: Any, kind: type[InvalidRequest], words: str) -> None:
    with pytest.raises(kind, match=words):
        CheckedCollection(family)


def test_lists_are_taken_as_tuples_and_later_changes_do_not_matter() -> None:
    equal, fields = ["state"], {"state": str}
    shape = CheckedCollection(Collection("t", fields, indexes=[Index("i", equal)], counters=[["state"]]))  # type: ignore[arg-type]
    equal.append("owner")
    fields["owner"] = str
    assert shape.indexes == (Index("i", ("state",)),)
    assert shape.counters == (("state",),)
    assert set(shape.types) == {"state"}


@pytest.mark.parametrize("name", ["other", "", None, 7, ["t"]])
def test_an_unknown_collection_is_named_with_what_to_do(name: Any) -> None:
    with pytest.raises(NotDeclared, match="declare="):
        Declarations().shape(name)


# ---------------------------------------------------------------------------------------------------------- shapes

NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,10}", fullmatch=True)


@st.composite
def collections(draw: st.DrawFn) -> Collection:
    fields = draw(st.dictionaries(NAMES, st.sampled_from((str, int, float, bool)), max_size=4))
    groups = st.lists(st.sampled_from(sorted(fields)), unique=True).map(tuple) if fields else st.just(())
    order = st.none() | st.sampled_from(sorted(fields)) if fields else st.none()
    names = draw(st.lists(NAMES, max_size=4, unique=True))
    expiring = draw(st.booleans())
    return Collection(
        draw(NAMES),
        fields,
        tuple(Index(name, draw(groups), draw(order)) for name in names),
        () if expiring else tuple(draw(st.lists(groups, max_size=3))),
        expiring=expiring,
    )


@given(collections())
def test_a_declaration_comes_back_from_storage(collection: Collection) -> None:
    shape = CheckedCollection(collection)
    loaded = CheckedCollection.load(collection.name, shape.dump())
    assert loaded.dump() == shape.dump()
    assert loaded.types == shape.types
    assert (loaded.indexes, loaded.counters) == (shape.indexes, shape.counters)
    assert loaded.collection.expiring == collection.expiring


def test_a_dump_differs_exactly_when_the_stored_data_would_differ() -> None:
    dump = CheckedCollection(TASKS).dump()
    same = Collection("tasks", dict(list(TASKS.fields.items())[::-1]), TASKS.indexes, TASKS.counters)
    assert CheckedCollection(same).dump() == dump
    for other in (
        Collection("tasks", {**TASKS.fields, "rank": float}, TASKS.indexes, TASKS.counters),
        Collection("tasks", TASKS.fields, TASKS.indexes[:1], TASKS.counters),
        Collection("tasks", TASKS.fields, TASKS.indexes[::-1], TASKS.counters),
        Collection("tasks", TASKS.fields, TASKS.indexes, TASKS.counters[:2]),
        Collection("tasks", TASKS.fields, TASKS.indexes, expiring=True),
    ):
        assert CheckedCollection(other).dump() != dump


def test_entries_and_groups_follow_the_fields() -> None:
    shape = CheckedCollection(TASKS)
    fields: Mapping[str, Scalar] = {"state": "open", "rank": 4}
    assert shape.entries("p", "k", fields) == [encode(("p", "k")), encode(("p", "open", None, 4, "k"))]
    assert shape.groups("p", fields) == [encode(("p",)), encode(("p", "open")), encode(("p", "open", None))]


@pytest.mark.parametrize(
    ("query", "number"),
    [
        (Query("tasks"), 0),
        (Query("tasks", {"owner": "me", "state": "open"}, "rank"), 1),
        (Query("tasks", {"state": "open"}), None),
        (Query("tasks", {"state": "open", "owner": "me"}), None),
        (Query("tasks", order="rank"), None),
    ],
)
def test_a_query_is_covered_by_exactly_its_index(query: Query, number: int | None) -> None:
    shape = CheckedCollection(TASKS)
    if number is not None:
        assert shape.index_for(query) == number
    else:
        with pytest.raises(NoIndex, match=r"declare Index\(name, equal="):
            shape.index_for(query)


def test_a_counter_answers_its_own_filters_without_a_range() -> None:
    shape = CheckedCollection(TASKS)
    assert shape.counter_for(Query("tasks")) == 0
    assert shape.counter_for(Query("tasks", {"owner": "me", "state": "open"})) == 2
    assert shape.counter_for(Query("tasks", {"owner": "me"})) is None
    assert shape.counter_for(Query("tasks", since="a")) is None
    assert shape.counter_for(Query("tasks", until="a")) is None


# ---------------------------------------------------------------------------------------------------------- values

BAD_VALUES: list[tuple[str, Any, type[InvalidRequest], str]] = [
    ("nope", 1, NotDeclared, "no field 'nope'"),
    ("nope", None, NotDeclared, "no field 'nope'"),
    ("state", 1, InvalidValue, "must be str, not int"),
    ("state", b"open", InvalidValue, "must be str, not bytes"),
    ("state", "\ud83d\ude00", InvalidValue, "pair of surrogates"),
    ("rank", True, InvalidValue, "must be int, not bool"),
    ("rank", 1.0, InvalidValue, "must be int, not float"),
    ("rank", 1 << 63, InvalidValue, "64 bits"),
    ("rank", -(1 << 63) - 1, InvalidValue, "64 bits"),
    ("score", 1, InvalidValue, "must be float, not int"),
    ("score", math.inf, InvalidValue, "finite"),
    ("score", math.nan, InvalidValue, "finite"),
    ("open", 0, InvalidValue, "must be bool, not int"),
]


@pytest.mark.parametrize(("name", "value", "kind", "words"), BAD_VALUES)
def test_a_value_of_another_type_is_refused(name: str, value: Any, kind: type[InvalidRequest], words: str) -> None:
    shape = CheckedCollection(TASKS)
    for refuse in (shape.fields, shape.checked):
        with pytest.raises(kind, match=words):
            refuse({"owner": "me", name: value})


def test_fields_are_copied_and_none_is_the_same_as_not_given() -> None:
    shape = CheckedCollection(TASKS)
    given_fields: dict[str, Scalar] = {"state": "open", "owner": None, "rank": 0, "score": -0.0, "open": False}
    kept = shape.fields(given_fields)
    given_fields.clear()
    assert kept == {"state": "open", "rank": 0, "score": 0.0, "open": False}
    assert shape.fields({}) is NO_FIELDS
    assert shape.checked({"owner": None}) == {"owner": None}


# ------------------------------------------------------------------------------------------------ fields as JSON

TEXTS = st.text(st.characters()).filter(lambda text: json.loads(json.dumps(text)) == text)
SCALARS = st.one_of(
    TEXTS,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
)


@given(st.dictionaries(TEXTS, SCALARS, max_size=5))
@example({"lone": "\ud800", "nul": "\0", "quote": '"\\', "line": "\u2028", "emoji": "😀"})
@example({"big": (1 << 63) - 1, "small": -(1 << 63), "zero": -0.0, "tiny": 5e-324, "huge": 1.7976931348623157e308})
def test_fields_come_back_equal_and_of_their_types(fields: dict[str, Scalar]) -> None:
    stored = {name: value for name, value in fields.items() if value is not None}
    text = dump_fields(stored)
    assert text.isascii()
    loaded = load_fields(text)
    assert loaded == stored
    assert list(map(repr, loaded.values())) == list(map(repr, stored.values()))
    if stored:  # it is standard JSON
        assert json.loads(text) == json.loads(json.dumps(stored))
        assert text == json.dumps(stored, separators=(",", ":"))


def test_no_fields_are_no_text() -> None:
    assert dump_fields({}) == ""
    assert load_fields("") is NO_FIELDS


def test_a_text_field_has_a_limit() -> None:
    """Fields are for queries; longer text belongs in the body."""
    shape = CheckedCollection(Collection("note", fields={"title": str}))
    assert shape.fields({"title": "x" * MAX_FIELD_CHARS}) == {"title": "x" * MAX_FIELD_CHARS}
    with pytest.raises(TooLarge, match="put it into the body"):
        shape.fields({"title": "x" * (MAX_FIELD_CHARS + 1)})
