"""The number of an event is appended to it; clients without support for it ignore it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.protocol.protobuf.numbers import FIELD, number_of, numbered

PB: Any = import_module("a2a.types.a2a_pb2")
UNKNOWN: Any = import_module("google.protobuf.unknown_fields")


@given(st.text(max_size=300), st.integers(0, 2**62))
def test_it_is_read_back(text: str, seq: int) -> None:
    event = PB.StreamResponse(message=PB.Message(message_id=text))
    data = numbered(event.SerializeToString(), seq)
    assert number_of(data) == seq
    read = PB.StreamResponse.FromString(data)
    assert read.message == event.message
    [field] = UNKNOWN.UnknownFieldSet(read)
    assert (field.field_number, field.data) == (FIELD, seq)


def test_an_event_without_a_number() -> None:
    event = PB.StreamResponse(message=PB.Message(message_id="m")).SerializeToString()
    assert numbered(event, None) == event
    assert number_of(event) is None
    assert number_of(b"") is None


@given(st.binary(max_size=40))
def test_any_bytes(data: bytes) -> None:
    found = number_of(data)
    assert found is None or found >= 0


@pytest.mark.parametrize("kind", [b"\x09" + b"\0" * 8, b"\x0d" + b"\0" * 4, b"\x0a\x01x"])
def test_other_fields_are_skipped(kind: bytes) -> None:
    assert number_of(kind + numbered(b"", 7)) == 7
