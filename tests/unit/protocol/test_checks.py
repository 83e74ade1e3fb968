"""The sizes of a request are checked before it is validated."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.errors import RequestTooLargeError
from keelbolt.protocol.jsonrpc import parse
from keelbolt.protocol.validation import Limits, bounded

LIMITS = Limits(items=3)


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"message": {"parts": [{}] * 4}}, "message.parts"),
        ({"request": {"content": [0] * 4}}, "request.content"),
        ({"message": {"referenceTaskIds": [0] * 4}}, "message.referenceTaskIds"),
        ({"message": {"extensions": [""] * 4}}, "message.extensions"),
        ({"configuration": {"acceptedOutputModes": [""] * 4}}, "configuration.acceptedOutputModes"),
        ({"metadata": dict.fromkeys("abcd")}, "metadata"),
        ({"message": {"parts": [{"metadata": dict.fromkeys("abcd")}]}}, "message.parts[0].metadata"),
        (dict.fromkeys("abcd"), "the request"),
    ],
)
def test_a_list_that_is_too_long_is_named(params: dict[str, Any], name: str) -> None:
    with pytest.raises(RequestTooLargeError) as caught:
        bounded(params, LIMITS)
    assert str(caught.value) == f"{name} has 4 items; the limit is 3"


@pytest.mark.parametrize(
    "params",
    [
        {"message": {"parts": [{}] * 3}},
        {"message": {"parts": [{"data": [0] * 4}, {"data": dict.fromkeys("abcd")}]}},
        {"metadata": {"a": [0] * 4, "b": dict.fromkeys("abcd")}},
    ],
)
def test_data_and_the_values_of_metadata_are_any_json(params: dict[str, Any]) -> None:
    bounded(params, LIMITS)


def test_a_call_that_is_too_large_keeps_its_id() -> None:
    body = b'{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"parts":[0,0,0,0]}}}'
    with pytest.raises(RequestTooLargeError) as caught:
        parse(body, limits=LIMITS)
    assert caught.value.request_id == b"7"
