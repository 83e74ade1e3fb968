"""Canonical JSON equals the examples of RFC 8785 and the output of the official SDK."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.protocol.signatures import canonical_json
from tests.unit.protocol import strategies as some

# RFC 8785, appendix B
NUMBERS = """
0000000000000000 0
8000000000000000 0
0000000000000001 5e-324
8000000000000001 -5e-324
7fefffffffffffff 1.7976931348623157e+308
ffefffffffffffff -1.7976931348623157e+308
4340000000000000 9007199254740992
c340000000000000 -9007199254740992
4430000000000000 295147905179352830000
44b52d02c7e14af5 9.999999999999997e+22
44b52d02c7e14af6 1e+23
44b52d02c7e14af7 1.0000000000000001e+23
444b1ae4d6e2ef4e 999999999999999700000
444b1ae4d6e2ef4f 999999999999999900000
444b1ae4d6e2ef50 1e+21
3eb0c6f7a0b5ed8c 9.999999999999997e-7
3eb0c6f7a0b5ed8d 0.000001
41b3de4355555553 333333333.3333332
41b3de4355555554 333333333.33333325
41b3de4355555555 333333333.3333333
41b3de4355555556 333333333.3333334
41b3de4355555557 333333333.33333343
becbf647612f3696 -0.0000033333333333333333
43143ff3c1cb0959 1424953923781206.2
"""


@pytest.mark.parametrize("line", NUMBERS.strip().splitlines())
def test_numbers(line: str) -> None:
    bits, text = line.split()
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(value) == text.encode()


def test_the_order_of_members() -> None:
    """Members are ordered by UTF-16: an emoji comes before the last letters of the basic plane."""
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\u00f6"]
    value = dict.fromkeys(names, 0)
    assert list(json.loads(canonical_json(value))) == ["\r", "1", "\x80", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_literals_and_escapes() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert canonical_json(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 2**53 + 1, 10**21, 10**400, b"x", {"a": object()}])
def test_values_without_a_canonical_form(wrong: Any) -> None:
    with pytest.raises(ValueError):
        canonical_json(wrong)


@given(some.json_values)
def test_it_is_equivalent_and_stable(value: Any) -> None:
    text = canonical_json(value)
    assert json.loads(text, parse_int=float) == json.loads(json.dumps(value), parse_int=float)
    assert canonical_json(json.loads(text)) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_back(value: float) -> None:
    assert float(canonical_json(value)) == value
