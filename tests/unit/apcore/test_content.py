"""Conversion of message parts to inputs and of outputs to parts, and detection of media types."""

from __future__ import annotations

import base64
import contextlib
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import from_json

from keelbolt.apcore.inputs import check_input, parts_to_input
from keelbolt.apcore.outputs import INLINE_BYTES, media_type_of, output_to_parts
from keelbolt.apcore.schemas import inline
from keelbolt.errors import InvalidAgentResponseError, SkillInputError
from keelbolt.protocol.types import Part, encode


class Words(BaseModel):
    text: str


class Sum(BaseModel):
    numbers: list[int]
    factor: int | None = None
    rate: float = 1.0


class Picture(BaseModel):
    image: bytes
    title: str = ""


class Album(BaseModel):
    images: list[bytes]


def module(model: Any) -> Any:
    whole = model.model_json_schema() if model is not None else {}
    return SimpleNamespace(
        id="m", model=model, input_schema=inline(whole), descriptor=SimpleNamespace(input_schema=whole)
    )


def text(value: str) -> Part:
    return Part(text=value)


def data(value: Any) -> Part:
    return Part(data=value)


@pytest.mark.parametrize(
    ("model", "parts", "wanted"),
    [
        (Words, [data({"text": "x"})], {"text": "x"}),
        (Words, [text("hello")], {"text": "hello"}),
        (Words, [text('{"text": "from JSON"}')], {"text": "from JSON"}),
        (Words, [text('{"other": 1}')], {"text": '{"other": 1}'}),
        (Words, [text("{no JSON")], {"text": "{no JSON"}),
        (Words, [text("two"), text("parts")], {"text": "two\nparts"}),
        (Sum, [text('{"numbers": [1, 2]}')], {"numbers": [1, 2]}),
        (Sum, [data({"numbers": [1]}), data({"factor": 2})], {"numbers": [1], "factor": 2}),
        (Sum, [text("please add"), data({"numbers": [1]})], {"numbers": [1]}),
        (Sum, [data({"numbers": [1.0], "factor": 2.0, "rate": 3.0})], {"numbers": [1], "factor": 2, "rate": 3.0}),
        (Sum, [data({"numbers": [2**80]})], {"numbers": [2**80]}),
        (Picture, [Part(raw=b"x"), data({"title": "t"})], {"image": b"x", "title": "t"}),
        (Picture, [Part(raw=b"x"), text("a title")], {"image": b"x", "title": "a title"}),
        (Album, [Part(raw=b"x"), Part(raw=b"y")], {"images": [b"x", b"y"]}),
        (None, [Part(url="https://a.example/x", filename="x")], {"uri": "https://a.example/x", "name": "x"}),
        (None, [Part(raw=b"x")], {"bytes": base64.b64encode(b"x").decode()}),
    ],
)
def test_parts_become_input(model: Any, parts: list[Part], wanted: Any) -> None:
    found = parts_to_input(parts, module(model))
    assert found == wanted
    assert [type(number) for number in found.get("numbers", ())] == [int] * len(found.get("numbers", ()))


@pytest.mark.parametrize(
    ("model", "parts", "words"),
    [
        (Words, [], "Message must contain at least one Part"),
        (Sum, [text("no JSON")], "Invalid JSON in TextPart"),
        (Sum, [text("[1, 2]")], "JSON object"),
        (Sum, [text('{"a": 1, "a": 2}')], "Invalid JSON in TextPart"),
        (Sum, [text("[" * 100_000)], "Invalid JSON in TextPart"),
        (Sum, [data([1])], "JSON object"),
        (Sum, [data("text")], "JSON object"),
        (Sum, [data(None)], "JSON object"),
        (Sum, [data({"numbers": [1]}), data({"numbers": [2]})], "two parts"),
        (Words, [data({"text": "x", "_approval_token": "t"})], "_approval_token"),
        (Words, [text('{"text": "x", "_approval_token": "t"}')], "_approval_token"),
        (Words, [Part(raw=b"x")], "does not accept this file"),
        (Picture, [Part(url="https://a.example/x")], "send the bytes of this file"),
        (Picture, [Part(raw=b"x"), Part(raw=b"y")], "file"),
    ],
)
def test_invalid_inputs_are_refused(model: Any, parts: list[Part], words: str) -> None:
    with pytest.raises(SkillInputError, match=words):
        parts_to_input(parts, module(model))


def test_schema_violations_are_refused_with_json_pointers() -> None:
    check_input({"numbers": [1]}, module(Sum))
    check_input({"image": b"\xff"}, module(Picture))
    check_input({"anything": 1}, module(None))
    with pytest.raises(SkillInputError) as refused:
        check_input({"numbers": [1, "2", 3.5], "rate": "x"}, module(Sum))
    assert [error["path"] for error in refused.value.data["errors"]] == ["/numbers/1", "/numbers/2", "/rate"]
    assert refused.value.data["type"] == "SchemaValidationError"
    with pytest.raises(SkillInputError) as missing:
        check_input({}, module(Sum))
    assert missing.value.data["errors"][0]["path"] == "/numbers"
    long = "x/" * 5000
    with pytest.raises(SkillInputError) as twice:
        parts_to_input([data({long: 1}), data({long: 2})], module(None))
    assert twice.value.data["errors"][0]["path"].startswith("/x~1x~1")
    assert len(str(twice.value)) < 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_parts_to_input_returns_or_raises_skill_input_error(value: Any) -> None:
    for part in (Part(data=value), Part(text=str(value))):
        for model in (Words, Sum, Picture, None):
            with contextlib.suppress(SkillInputError):
                assert isinstance(parts_to_input([part], module(model)), dict)


# ---------------------------------------------------------------------------------------------------------- outputs


kept: list[tuple[bytes, str, str]] = []


async def keep(content: bytes, media_type: str, name: str) -> str:
    kept.append((content, media_type, name))
    return f"https://agent.example/{name}"


async def test_outputs_become_parts() -> None:
    assert await output_to_parts(None, keep) == []
    [part] = await output_to_parts("words", keep)
    assert part.text == "words"
    [part] = await output_to_parts(b"%PDF-1.7", keep)
    assert (part.raw, part.media_type) == (b"%PDF-1.7", "application/pdf")
    [part] = await output_to_parts({"a": [1, 2.5, None, True, "x"]}, keep)
    assert (part.data, part.media_type) == ({"a": [1, 2.5, None, True, "x"]}, "application/json")


class Color(Enum):
    red = "r"


async def test_json_compatible_values_are_converted() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    given = {"when": moment, "price": Decimal("1.10"), "id": uuid.UUID(int=1), "tags": {"a"}, "color": Color.red}
    [part] = await output_to_parts({**given, "model": Words(text="x"), 5: (1,)}, keep)
    assert from_json(encode(part))["data"] == {
        "when": "2026-01-02T00:00:00Z",
        "price": "1.10",
        "id": "00000000-0000-0000-0000-000000000001",
        "tags": ["a"],
        "color": "r",
        "model": {"text": "x"},
        "5": [1],
    }


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63), 10**50, 0.1, 1e300])
async def test_numbers_are_exact(number: Any) -> None:
    [part] = await output_to_parts({"n": number}, keep)
    found = from_json(encode(part))["data"]["n"]
    assert (found, type(found)) == (number, type(number))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {"a": {"b": lambda: 0}}])
async def test_outputs_that_are_not_json_are_refused(value: Any) -> None:
    with pytest.raises(InvalidAgentResponseError, match="not JSON"):
        await output_to_parts({"x": value}, keep)


async def test_large_files_are_stored_as_task_files() -> None:
    kept.clear()
    small, large = bytes(INLINE_BYTES), bytes(INLINE_BYTES + 1)
    _, inline_part, kept_part = await output_to_parts({"a": small, "b": [large]}, keep)
    assert inline_part.raw == small
    assert (kept_part.url, kept_part.raw) == ("https://agent.example/b.0", None)
    assert kept == [(large, "application/octet-stream", "b.0")]


async def test_files_with_equal_names_get_distinct_names() -> None:
    parts = await output_to_parts({"a": {"b": b"one"}, "a.b": b"two"}, keep)
    assert sorted(part.raw or b"" for part in parts[1:]) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"%PDF-1.4", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x1f\x8b\x08", "application/gzip"),
        (b"\0\0\0\x18ftypmp42", "video/mp4"),
        (b"plain words", "text/plain"),
        ("grüße ".encode() * 20_000, "text/plain"),
        (b"<html><script>", "text/plain"),
        (b"\0\1\2", "application/octet-stream"),
        (b"\xff\xfe\xfd", "application/octet-stream"),
        (b"", "text/plain"),
    ],
)
def test_media_types_are_detected(content: bytes, wanted: str) -> None:
    assert media_type_of(content) == wanted
