"""The fields of a protobuf message are counted before it is parsed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from keelbolt.errors import ParseError, RequestTooLargeError
from keelbolt.protocol.protobuf.methods import check_fields
from keelbolt.protocol.protobuf.numbers import write_varint
from keelbolt.protocol.validation import Limits

PB: Any = import_module("a2a.types.a2a_pb2")
REQUEST = PB.SendMessageRequest.DESCRIPTOR


def check(request: Any, **limits: int) -> None:
    check_fields(request.SerializeToString(), REQUEST, Limits(**limits))


def sent(*parts: Any, **more: Any) -> Any:
    return PB.SendMessageRequest(message=PB.Message(message_id="m", role=PB.ROLE_USER, parts=parts, **more))


def data(value: Any) -> Any:
    part = PB.Part()
    if isinstance(value, list):
        part.data.list_value.extend(value)
    else:
        part.data.struct_value.update(value)
    return part


def test_a_list_that_is_too_long_is_named() -> None:
    check(sent(PB.Part(text="a"), PB.Part(text="b")), items=2)
    with pytest.raises(RequestTooLargeError, match=r"^parts has more than 2 items$"):
        check(sent(PB.Part(), PB.Part(), PB.Part()), items=2)
    with pytest.raises(RequestTooLargeError, match=r"^referenceTaskIds has more than 2 items$"):
        check(sent(reference_task_ids=["", "", ""]), items=2)


def test_keys_of_metadata_are_limited_and_keys_of_data_are_not() -> None:
    check(sent(data(dict.fromkeys("abc", 1))), items=2)
    check(sent(data([1, 2, 3])), items=2)
    request = sent(PB.Part(text="a"))
    request.metadata.update(dict.fromkeys("abc", 1))
    with pytest.raises(RequestTooLargeError, match="has more than 2 items"):
        check(request, items=2)


def test_all_fields_are_counted() -> None:
    request = sent(data([1] * 100))
    check(request, values=300)
    with pytest.raises(RequestTooLargeError, match=r"^the request has more than 100 fields$"):
        check(request, values=100)


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a",  # no size
        b"\x0a\x05ab",  # fewer bytes than its size
        b"\x12\x02\x0a\x05",  # the inner one is longer than the outer one
        b"\xff" * 20,  # an endless number
        b"\x0b\x0c",  # a group
        b"\x0f",  # no valid wire type
    ],
)
def test_bytes_that_are_not_a_message(content: bytes) -> None:
    with pytest.raises(ParseError, match=r"the request is not a valid lf.a2a.v1.SendMessageRequest"):
        check_fields(content, REQUEST, Limits())


def test_nested_messages() -> None:
    value, values = b"", b""
    for _ in range(120):  # a list of one list of one list …
        values = b"\x0a" + write_varint(len(value)) + value
        value = b"\x32" + write_varint(len(values)) + values
    with pytest.raises(ParseError):
        check_fields(value, import_module("google.protobuf.struct_pb2").Value.DESCRIPTOR, Limits())
