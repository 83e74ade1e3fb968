"""Sample inputs match the schema that they are made from."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from keelbolt.apcore.schemas import inline, sample_input
from tests.integration.apcore.modules import Anything, Numbers, Text


class Colour(Enum):
    red = "red"


class Inner(BaseModel):
    name: str
    more: int = 3


class All(BaseModel):
    text: str = Field(min_length=8)
    short: str = Field(max_length=2)
    count: int = Field(ge=10)
    few: int = Field(le=-3)
    share: float
    sure: bool
    kind: Literal["a", "b"]
    colour: Colour
    maybe: int | None
    inner: Inner
    list_: list[Inner]
    named: str = Field(examples=["Ann"])
    left_out: str = "x"


class Tree(BaseModel):
    name: str
    parent: Tree | None


@pytest.mark.parametrize("model", [Text, Numbers, Anything, All, Tree])
def test_a_sample_matches_its_schema(model: Any) -> None:
    sample = sample_input(inline(model.model_json_schema()))
    model.model_validate_json(json.dumps(sample), strict=True)
    assert "left_out" not in sample
    assert sample.get("named", "Ann") == "Ann"


@pytest.mark.parametrize("schema", [{}, {"required": ["x"]}, {"properties": {"x": {}}, "required": ["x"]}])
def test_samples_match_generated_schemas(schema: dict[str, Any]) -> None:
    assert isinstance(sample_input(schema), dict)
