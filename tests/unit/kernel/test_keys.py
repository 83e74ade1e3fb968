"""The encoding of keys: encoded tuples compare as bytes in the order of their values."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keelbolt.kernel.keys import END, LONG_BYTES, encode, encode_text
from keelbolt.kernel.records import Scalar

INTS = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SHORT = st.text(st.characters(), max_size=LONG_BYTES // 4)  # at most LONG_BYTES in UTF-8, lone surrogates included
NULS = st.text("\0\1a\x7f", max_size=6)
TEXTS = st.one_of(SHORT, NULS)
COLUMNS = (INTS, FLOATS, TEXTS, st.booleans())


def rank(value: Scalar) -> tuple[int, object]:
    """The order of the encoding, in Python: None < False < True < int < float < str, by code points."""
    if value is None:
        return 0, 0
    if isinstance(value, bool):
        return 1 + value, 0
    if isinstance(value, int):
        return 3, value
    if isinstance(value, float):
        return 4, value
    return 5, value


def ranks(values: tuple[Scalar, ...]) -> tuple[tuple[int, object], ...]:
    return tuple(map(rank, values))


@st.composite
def rows(draw: st.DrawFn) -> list[tuple[Scalar, ...]]:
    """Generate rows of one index: a column has one type, or None."""
    columns = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | column for column in columns))
    return draw(st.lists(row, min_size=2, max_size=8))


@given(rows())
def test_the_order_of_rows_is_the_order_of_their_bytes(given_rows: list[tuple[Scalar, ...]]) -> None:
    assert [ranks(row) for row in sorted(given_rows, key=encode)] == sorted(map(ranks, given_rows))


@given(st.tuples(st.none() | INTS | FLOATS | TEXTS | st.booleans(), st.none() | INTS | FLOATS | TEXTS | st.booleans()))
def test_values_of_different_types_have_an_order_too(pair: tuple[Scalar, Scalar]) -> None:
    one, other = pair
    assert (encode((one,)) < encode((other,))) == (rank(one) < rank(other))
    assert (encode((one,)) == encode((other,))) == (rank(one) == rank(other))


@given(rows())
def test_a_row_is_found_by_its_prefix_and_by_no_other(given_rows: list[tuple[Scalar, ...]]) -> None:
    """The range [prefix, prefix + END) holds exactly the rows that begin with these values."""
    for size in range(1, len(given_rows[0]) + 1):
        low = encode(given_rows[0][:size])
        for row in given_rows:
            inside = low <= encode(row) + b"\x01" < low + END  # an index entry ends with the key, so more bytes follow
            assert inside == (ranks(row[:size]) == ranks(given_rows[0][:size]))


@given(st.text(max_size=260), st.text(max_size=260))
@example("x" * LONG_BYTES, "x" * (LONG_BYTES + 1))
@example("x" * (LONG_BYTES + 1), "x" * (LONG_BYTES + 2))
@example("é" * 99 + "ab\0", "é" * 99 + "ab\0c")
def test_equality_is_exact_whatever_the_length(one: str, other: str) -> None:
    prefix = encode_text(one)
    assert (prefix <= encode((other, "key")) < prefix + END) == (one == other)


@given(st.text("ab\0é", max_size=230), st.text("ab\0é", max_size=230), st.text("ab\0", min_size=150, max_size=190))
def test_long_strings_are_ordered_by_their_first_bytes(one: str, other: str, same: str) -> None:
    first, second = (same + one).encode()[:LONG_BYTES], (same + other).encode()[:LONG_BYTES]
    if first != second:
        assert (encode((same + one,)) < encode((same + other,))) == (first < second)


def test_the_two_zeros_are_one_value() -> None:
    assert encode((-0.0,)) == encode((0.0,))
    tiny = math.ulp(0.0)
    assert encode((-tiny,)) < encode((0.0,)) < encode((tiny,))


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1])
def test_an_int_outside_of_64_bits_has_no_encoding(value: int) -> None:
    """Declarations refuse such values; the encoding never wraps around."""
    with pytest.raises(struct.error):
        encode((value,))


def test_the_encoding_is_pinned() -> None:
    """Files hold these bytes: a change of the encoding needs a migration."""
    assert encode((None, False, True)).hex() == "010203"
    assert encode((0, -1, 258)).hex() == "108000000000000000107fffffffffffffff108000000000000102"
    assert encode((1.5, -1.5)).hex() == "11bff8000000000000114007ffffffffffff"
    assert encode(("", "a\0é")).hex() == "2000206100ffc3a900"
    long = encode(("x" * 201,))
    assert long[:203] == b"\x20" + b"x" * 200 + b"\0\xfe"[:2]
    assert len(long) == 1 + 200 + 2 + 32
