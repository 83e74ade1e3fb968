"""Models of modules remember their JSON schemas, and nobody can tell the difference."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from holdfast.apcore.remembered import _known, remember_schemas


def plain(model: type[BaseModel], *given: Any, **named: Any) -> Any:
    return BaseModel.model_json_schema.__func__(model, *given, **named)  # type: ignore[attr-defined]


class Inner(BaseModel):
    kind: Literal["a", "b"] = "a"


class Outer(BaseModel):
    inner: Inner
    others: list[Inner] = Field(default_factory=list, alias="rest")
    number: float = 1e300


class Own(BaseModel):
    calls: ClassVar[int] = 0

    @classmethod
    def model_json_schema(cls, *_given: Any, **_named: Any) -> dict[str, Any]:
        cls.calls += 1
        return {"type": "object"}


class Decimals(BaseModel):
    model_config = ConfigDict(json_schema_extra={"x": Decimal("1.5")})  # type: ignore[dict-item]


class Nameless(BaseModel):
    model_config = ConfigDict(json_schema_extra={"x": float("nan")})


class Pairs(BaseModel):
    model_config = ConfigDict(json_schema_extra={"x": (1, 2)})  # type: ignore[dict-item]


class Module:
    def __init__(self, given: Any, gives: Any = None) -> None:
        self.input_schema, self.output_schema = given, gives


def test_the_schema_is_made_once_and_is_the_same() -> None:
    remember_schemas([Module(Outer, Inner)])
    for model in (Outer, Inner):
        assert model.model_json_schema() == plain(model)
        assert model.model_json_schema() == model.model_json_schema()
        assert model in _known
        assert list(model.model_json_schema()) == list(plain(model))
    made = _known[Outer]
    Outer.model_json_schema()
    assert _known[Outer] is made


def test_what_a_caller_does_to_it_is_its_own_affair() -> None:
    remember_schemas([Module(Outer)])
    Outer.model_json_schema()["properties"].clear()
    assert Outer.model_json_schema() == plain(Outer)


def test_questions_of_another_kind_are_passed_on() -> None:
    remember_schemas([Module(Outer)])
    assert Outer.model_json_schema(by_alias=False) == plain(Outer, by_alias=False)
    assert Outer.model_json_schema(mode="serialization") == plain(Outer, mode="serialization")


def test_a_model_that_is_built_anew_has_a_schema_anew() -> None:
    class Late(BaseModel):
        word: str

    remember_schemas([Module(Late)])
    first = Late.model_json_schema()
    Late.model_fields["word"].description = "new"
    Late.model_rebuild(force=True)
    assert Late.model_json_schema() == plain(Late)
    assert Late.model_json_schema() != first


def test_children_have_their_own() -> None:
    remember_schemas([Module(Outer)])

    class Child(Outer):
        more: int

    assert Child.model_json_schema() == plain(Child)
    assert "more" in Child.model_json_schema()["properties"]


def test_a_model_with_a_way_of_its_own_keeps_it() -> None:
    remember_schemas([Module(Own)])
    Own.model_json_schema()
    Own.model_json_schema()
    assert Own.calls == 2


@pytest.mark.parametrize("schema", [None, {"type": "object"}, "text", int, Own()])
def test_what_is_no_model_is_left_alone(schema: Any) -> None:
    remember_schemas([Module(schema), object()])


@pytest.mark.parametrize("model", [Decimals, Nameless, Pairs])
def test_what_json_can_not_hold_is_made_each_time(model: type[BaseModel]) -> None:
    remember_schemas([Module(model)])
    assert str(model.model_json_schema()) == str(plain(model))
    assert model not in _known
