"""The official types: the protobuf messages of 1.0 and 0.3, and the models of 0.3, parsed strictly."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

PB_V1: Any = import_module("a2a.types.a2a_pb2")
PB_V03: Any = import_module("a2a.compat.v0_3.a2a_v0_3_pb2")
MODELS_V03: Any = import_module("a2a.compat.v0_3.types")
_JSON: Any = import_module("google.protobuf.json_format")


def parse_v1(name: str, body: bytes) -> Any:
    """Parse the body as a message of 1.0; an unknown member is an error."""
    return _JSON.ParseDict(json.loads(body), getattr(PB_V1, name)(), ignore_unknown_fields=False)


def parse_v03_proto(name: str, body: bytes) -> Any:
    """Parse the body as a message of 0.3's protobuf."""
    return _JSON.ParseDict(json.loads(body), getattr(PB_V03, name)(), ignore_unknown_fields=False)


def parse_v03(name: str, body: bytes) -> Any:
    """Parse the body as a model of 0.3; the models ignore unknown members, so nothing may be missing afterwards."""
    value = json.loads(body)
    model = getattr(MODELS_V03, name).model_validate(value)
    assert model.model_dump(mode="json", by_alias=True, exclude_unset=True) == value
    return model


def to_json(message: Any) -> bytes:
    """Return a protobuf message as the official SDK writes it."""
    return json.dumps(_JSON.MessageToDict(message)).encode()


def to_snake_json(message: Any) -> bytes:
    """Return a protobuf message as the official 0.3 REST client writes it."""
    return json.dumps(_JSON.MessageToDict(message, preserving_proto_field_name=True)).encode()
