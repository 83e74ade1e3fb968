"""JSON-RPC: the id is returned exactly, and any bytes raise only typed errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import (
    InvalidParamsError,
    InvalidRequestError,
    MethodNotFoundError,
    ParseError,
    ProtocolError,
    RequestTooLargeError,
)
from keelbolt.protocol import jsonrpc, v1
from keelbolt.protocol.jsonrpc import parse
from keelbolt.protocol.operations import METHODS, METHODS_V03, METHODS_V1, NAMES_V03, STREAMING, Operation
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.sse import HEARTBEAT, event, retry
from tests.unit.protocol import strategies as some
from tests.unit.protocol.official import PB_V1


def body(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}} | members).encode()


@pytest.mark.parametrize(
    ("given_id", "answered"),
    [
        ("1", b"1"),
        ("0", b"0"),
        ("-7", b"-7"),
        ("123456789012345678901234567890", b"123456789012345678901234567890"),
        ('"a"', b'"a"'),
        ('""', b'""'),
        ('"é"', '"é"'.encode()),
        ("null", b"null"),
    ],
)
def test_the_id_is_kept(given_id: str, answered: bytes) -> None:
    call = parse(f'{{"jsonrpc":"2.0","method":"GetTask","id":{given_id}}}'.encode())
    assert call.id == answered
    assert jsonrpc.result(call.id, b"{}") == b'{"jsonrpc":"2.0","id":' + answered + b',"result":{}}'


def test_a_missing_id_is_null_in_the_response() -> None:
    call = parse(b'{"jsonrpc":"2.0","method":"GetTask"}')
    assert call.id == b"null"


@pytest.mark.parametrize("wrong", [1.5, 1.0, True, False, [], {"bad": "type"}, "x" * 257, 10**400])
def test_a_wrong_id(wrong: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse(body(id=wrong))
    assert caught.value.request_id == b"null"


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"jsonrpc": "1.0"}, InvalidRequestError),
        ({"jsonrpc": None}, InvalidRequestError),
        ({"jsonrpc": 2.0}, InvalidRequestError),
        ({"method": None}, InvalidRequestError),
        ({"method": 5}, InvalidRequestError),
        ({"method": ["GetTask"]}, InvalidRequestError),
        ({"params": "x"}, InvalidParamsError),
        ({"params": [1]}, InvalidParamsError),
        ({"params": 0}, InvalidParamsError),
        ({"params": False}, InvalidParamsError),
    ],
)
def test_the_error_of_a_wrong_request_has_its_id(members: dict[str, Any], error: type[ProtocolError]) -> None:
    with pytest.raises(error) as caught:
        parse(body(id="mine", **members))
    assert caught.value.request_id == b'"mine"'


@pytest.mark.parametrize("text", [b"[]", b"1", b'"x"', b"null", b"true"])
def test_not_an_object(text: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        parse(text)


def test_batches_are_refused_with_a_reason() -> None:
    with pytest.raises(InvalidRequestError, match="batches are not supported"):
        parse(b"[" + body() + b"," + body() + b"]")


def test_absent_and_null_params_are_empty() -> None:
    assert parse(b'{"jsonrpc":"2.0","id":1,"method":"m"}').params == {}
    assert parse(body(params=None)).params == {}


@pytest.mark.parametrize("method", ["message/ssend", "getTask", "", "__class__", "GetTask "])
def test_unknown_methods(method: str) -> None:
    with pytest.raises(MethodNotFoundError) as caught:
        parse(body(method=method)).resolve()
    assert caught.value.request_id == b"1"


@given(st.binary(max_size=60) | some.json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes(text: bytes) -> None:
    try:
        parse(text)
    except ProtocolError as error:
        assert isinstance(  # noqa: PT017
            error, ParseError | InvalidRequestError | RequestTooLargeError | InvalidParamsError
        )


@given(
    st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params"]), some.json_values | st.just("2.0")),
)
def test_any_members(members: dict[str, Any]) -> None:
    try:
        call = parse(json.dumps(members).encode())
    except ProtocolError as error:
        json.loads(error.request_id)
    else:
        assert json.loads(call.id) == members.get("id")


def test_the_names_of_both_versions() -> None:
    assert {operation.value for operation in Operation} == {
        method.name for method in PB_V1.DESCRIPTOR.services_by_name["A2AService"].methods
    }
    assert set(METHODS_V03.values()) == set(METHODS_V1.values()) == set(Operation) == set(NAMES_V03)
    assert not METHODS_V03.keys() & METHODS_V1.keys()
    assert METHODS["message/stream"] == (Operation.send_streaming_message, ProtocolVersion.v0_3)
    assert parse(body(method="SubscribeToTask")).resolve() == (Operation.subscribe_to_task, ProtocolVersion.v1_0)
    assert {
        Operation(method.name)
        for method in PB_V1.DESCRIPTOR.services_by_name["A2AService"].methods
        if method.server_streaming
    } == STREAMING


def test_frames_around_stored_bytes() -> None:
    update = v1.status_update("t", "c", b'{"status":{"state":"TASK_STATE_WORKING"}}')
    assert event(jsonrpc.result(b"7", update), seq=3) == (
        b'id: 3\ndata: {"jsonrpc":"2.0","id":7,"result":{"statusUpdate":{"taskId":"t","contextId":"c",'
        b'"status":{"state":"TASK_STATE_WORKING"}}}}\n\n'
    )
    assert event(b"{}") == b"data: {}\n\n"
    assert retry(5000) == b"retry: 5000\n\n"
    assert HEARTBEAT.startswith(b":")


def test_a_clients_request_is_parsed() -> None:
    call = parse(jsonrpc.request(b'"x"', "GetTask", b'{"id":"t"}'))
    assert (call.id, call.method, call.params) == (b'"x"', "GetTask", {"id": "t"})
