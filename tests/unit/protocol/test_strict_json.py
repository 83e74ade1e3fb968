"""JSON from clients: ambiguous input is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import ParseError, RequestTooLargeError
from keelbolt.protocol.strict_json import read
from keelbolt.protocol.validation import Limits
from tests.unit.protocol import strategies as some


@given(some.json_values)
def test_json_is_read(value: Any) -> None:
    assert read(json.dumps(value).encode()) == value
    assert read(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"a":1}x',
        b"{'a':1}",
        b'{"a":1,}',
        b"[1,]",
        b"nul",
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b'"\xed\xa0\x80"',  # a surrogate in UTF-8
        b'"\x00"',
        b'"a\nb"',
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b"1e999",
        b"-1e999",
        b"01",
        b'{"a":1,"a":1}',
        b'[{"x":{"a":1,"b":2,"a":3}}]',
        rb'{"a":1,"\u0061":2}',
        rb'"\ud800"',
        rb'"\udc00\ud800"',
        rb'{"\uD800x":1}',
        b"9" * 5000,
    ],
)
def test_refused(body: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        read(body)
    assert len(str(caught.value)) < 200


def test_exact_values_stay_exact() -> None:
    assert read(b"[9007199254740993, 1.5, -0.0, 1e22]") == [9007199254740993, 1.5, 0.0, 1e22]
    assert read(rb'"\ud83d\ude00"') == "\N{GRINNING FACE}"
    assert read(b'["\\\\ud800"]') == ["\\ud800"]


@pytest.mark.parametrize(("shape", "levels"), [("[%s]", 1), ('{"a":%s}', 1), ('[1,{"a":2,"b":%s}]', 2)])
def test_depth(shape: str, levels: int) -> None:
    text = "1"
    for _ in range(12 // levels):
        text = shape % text
    assert read(text.encode(), limits=Limits(depth=12))
    with pytest.raises(RequestTooLargeError, match="11 levels"):
        read(text.encode(), limits=Limits(depth=11))


@pytest.mark.parametrize("body", [b"[" * 200_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000])
def test_very_deep(body: bytes) -> None:
    with pytest.raises((RequestTooLargeError, ParseError)):
        read(body)


def test_brackets_in_strings_are_not_levels() -> None:
    text = "[{" * 1000
    assert read(json.dumps({"a": text}).encode()) == {"a": text}


def test_many_adjacent_brackets_are_not_levels() -> None:
    value: list[Any] = [[{}] for _ in range(1000)]
    assert read(json.dumps(value).encode(), limits=Limits(depth=3)) == value


def test_size() -> None:
    assert read(b'"12345678"', limits=Limits(body_bytes=10))
    with pytest.raises(RequestTooLargeError, match="10 bytes; the limit is 9"):
        read(b'"12345678"', limits=Limits(body_bytes=9))


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"0," * 5 + b"0]",
        b'{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0}',
        b"[[[[[[]]]]]]",
        b'["a","b","c",{},[]]',
        b'["\\\\",",",0,0,0,0,"",0',
    ],
)
def test_too_many_values_are_refused_before_they_are_parsed(body: bytes) -> None:
    with pytest.raises(RequestTooLargeError, match="more than 5 JSON values"):
        read(body, limits=Limits(values=5))


@pytest.mark.parametrize(
    "text", [",[{,[{,[{", '\\",[{,[{"', "\\\\", "\n,,,,,,,,"], ids=["plain", "quotes", "backslashes", "lines"]
)
def test_brackets_and_commas_in_strings_are_not_values(text: str) -> None:
    body = json.dumps([text, {text: text}]).encode()
    assert read(body, limits=Limits(values=5)) == [text, {text: text}]


@given(some.json_values)
def test_no_small_value_is_refused_for_its_number_of_values(value: Any) -> None:
    """Containers count twice: once for themselves and once for their contents."""
    body = json.dumps(value).encode()
    assert read(body, limits=Limits(values=2 * _count(value) + 1)) == value


def _count(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count, inner))


@given(st.binary(max_size=40) | st.text(alphabet='[]{}",:\\ud8019aeE+-.', max_size=40).map(str.encode))
def test_any_bytes(body: bytes) -> None:
    """Any bytes give a value that can be written again, or Keelbolt's own error."""
    try:
        value = read(body)
    except (ParseError, RequestTooLargeError):
        return
    assert read(json.dumps(value, ensure_ascii=False, allow_nan=False).encode()) == value
