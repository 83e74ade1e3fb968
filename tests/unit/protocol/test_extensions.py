"""The extensions header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import ExtensionSupportRequiredError
from keelbolt.protocol.extensions import MAX_EXTENSIONS, DeclaredExtension, activate, echo, parse

A, B = "https://example.com/a", "urn:b"


def test_lists_are_read() -> None:
    assert parse() == parse(None) == parse("") == parse(" , ,") == ()
    assert parse(f" {A},{B} ,, {A}") == (A, B)
    assert parse(A, None, f"{B}, {A}") == (A, B)


def test_values_that_could_not_be_returned_are_ignored() -> None:
    assert parse(f"a b,{A},x\r\ny,\x00,é") == (A,)


def test_the_number_is_limited() -> None:
    assert len(parse(",".join(f"urn:{number}" for number in range(1000)))) == MAX_EXTENSIONS


def test_declared_ones_are_activated() -> None:
    assert activate([B, "urn:unknown", A], [DeclaredExtension(A), DeclaredExtension(B)]) == (B, A)
    assert activate([], [DeclaredExtension(A)]) == ()
    assert echo(()) == ""
    assert parse(echo((A, B))) == (A, B)


def test_a_required_one_must_be_requested() -> None:
    assert activate([A], [DeclaredExtension(A, required=True)]) == (A,)
    with pytest.raises(ExtensionSupportRequiredError, match=f"requires {A}"):
        activate([B], [DeclaredExtension(A, required=True), DeclaredExtension(B)])


@given(st.lists(st.text(), max_size=3))
def test_the_response_header(values: list[str]) -> None:
    line = echo(parse(*values))
    assert line.isascii()
    assert line.isprintable()
    assert parse(line) == parse(*values)
