"""Our conversion equals protobuf's own for everything that a codec can express, in both directions."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keelbolt.errors import InvalidParamsError, ParseError
from keelbolt.protocol import v03_proto, v1
from keelbolt.protocol.card import (
    AgentCardConfig,
    CapabilitiesConfig,
    Interface,
    SkillConfig,
    build_card,
    card_v03_proto,
)
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.protobuf.methods import METHODS_V03, METHODS_V1, Method
from keelbolt.protocol.protobuf.shapes import shape
from keelbolt.protocol.requests import PushConfig, PushConfigPage, Request, StreamEvent, TaskPage
from keelbolt.protocol.types import Task
from keelbolt.protocol.v1 import MODELS
from tests.unit.protocol import strategies as some

FORMAT: Any = import_module("google.protobuf.json_format")
STRUCT: Any = import_module("google.protobuf.struct_pb2")


def official(method: Method, json_: bytes) -> Any:
    return FORMAT.ParseDict(json.loads(json_), method.answer(), ignore_unknown_fields=True)


def same(method: Method, json_: bytes) -> None:
    """Check that both read the same JSON as the same message."""
    assert method.answer.FromString(method.write_answer(json_)) == official(method, json_)


@given(some.events())
def test_events_of_1_0(event: StreamEvent) -> None:
    same(METHODS_V1["SendStreamingMessage"], v1.event(event))


@given(some.events(references=False))
def test_events_of_0_3(event: StreamEvent) -> None:
    same(METHODS_V03["SendStreamingMessage"], v03_proto.event(event))


@settings(max_examples=40)
@given(some.tasks(references=False))
def test_tasks(task: Task) -> None:
    same(METHODS_V1["GetTask"], v1.task(task))
    same(METHODS_V03["GetTask"], v03_proto.task(task))
    same(METHODS_V1["ListTasks"], v1.task_list(TaskPage([task], "next", 1, 7)))


@settings(max_examples=40)
@given(st.lists(some.push_configs, max_size=2))
def test_push_configs(configs: list[PushConfig]) -> None:
    same(METHODS_V1["ListTaskPushNotificationConfigs"], v1.push_config_list(PushConfigPage(configs, "next")))
    same(METHODS_V03["ListTaskPushNotificationConfig"], v03_proto.push_config_list(PushConfigPage(configs)))


@settings(max_examples=40)
@given(some.requests)
def test_requests_are_read_back(request: Request) -> None:
    """A client's protobuf message is read by the server as protobuf's own JSON."""
    operation = next(
        operation for operation, model in MODELS.items() if type(request) is model and operation.value in METHODS_V1
    )
    method = METHODS_V1[operation.value]
    json_ = v1.encode_request(request)
    data = method.write_request(json_)
    theirs = FORMAT.ParseDict(json.loads(json_), method.request(), ignore_unknown_fields=True)
    assert method.request.FromString(data) == theirs
    v1.decode(operation, method.read_request(data))
    assert method.read_request(data) == FORMAT.MessageToDict(theirs)


@settings(max_examples=40)
@given(some.tasks())
def test_responses_are_read_back(task: Task) -> None:
    method = METHODS_V1["SendMessage"]
    assert method.read_answer(method.write_answer(v1.sent_task(task))) == FORMAT.MessageToDict(
        official(method, v1.sent_task(task))
    )


def test_cards() -> None:
    config = AgentCardConfig(
        name="A",
        description="B",
        skills=[SkillConfig(id="s", name="S", description="does", tags=["t"], security=[{"key": []}])],
        capabilities=CapabilitiesConfig(streaming=True),
        security_schemes={"key": {"apiKeySecurityScheme": {"location": "header", "name": "x-key"}}},
        security=[{"key": ["read"]}, {}],
    )
    card = build_card(config, [Interface("localhost:1", "GRPC")])
    same(METHODS_V1["GetExtendedAgentCard"], json.dumps(card).encode())
    old = METHODS_V03["GetAgentCard"]
    json_ = json.dumps(card_v03_proto(card)).encode()
    same(old, json_)
    written = old.answer.FromString(old.write_answer(json_))
    assert list(written.security[0].schemes["key"].list) == ["read"]
    assert not written.security[1].schemes
    assert "key" in written.skills[0].security[0].schemes
    assert written.security_schemes["key"].api_key_security_scheme.name == "x-key"


@pytest.mark.parametrize(
    ("number", "back"),
    [
        (0, 0),
        (-0.0, -0.0),
        (42, 42),
        (2**53, 2**53),
        (2**53 + 1, float(2**53)),
        (2**63, float(2**63)),
        (10**400, "1" + "0" * 400),
        (1e300, 1e300),
        (2.5, 2.5),
        (5e-324, 5e-324),
    ],
)
def test_numbers(number: float, back: object) -> None:
    """Integers within ±2^53 are exact, larger ones the nearest double; beyond any double, a string."""
    method = METHODS_V1["GetTask"]
    task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}, "metadata": {"n": number}}
    found = method.read_answer(method.write_answer(json.dumps(task).encode()))["metadata"]["n"]
    assert (found, type(found)) == (back, type(back)) or (found == back == 2**53)
    assert str(found) == str(back) or found == back


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have(number: float) -> None:
    method = METHODS_V1["SendMessage"]
    request = method.request()
    request.metadata.fields["n"].number_value = number
    with pytest.raises(InvalidParamsError):
        method.read_request(request.SerializeToString())


def test_invalid_messages() -> None:
    with pytest.raises(ParseError, match=r"not a valid lf\.a2a\.v1\.SendMessageRequest"):
        METHODS_V1["SendMessage"].read_request(b"\xff\xff\xff")


def test_an_enum_of_the_future_is_left_to_validation() -> None:
    method = METHODS_V1["ListTasks"]
    request = method.request(status=99)
    with pytest.raises(InvalidParamsError):
        v1.decode(Operation.list_tasks, method.read_request(request.SerializeToString()))


def test_nesting_is_bounded() -> None:
    """Protobuf itself refuses messages that nest deeper than JSON may."""
    value = STRUCT.Value(string_value="deep")
    for _ in range(60):
        outer = STRUCT.Value()
        outer.list_value.values.add().CopyFrom(value)
        value = outer
    method = METHODS_V1["SendMessage"]
    request = method.request()
    request.metadata.fields["n"].CopyFrom(value)
    with pytest.raises(ParseError):
        method.read_request(request.SerializeToString())


@pytest.mark.parametrize("levels", [29, 30, 64, 150])
@pytest.mark.parametrize("array", [True, False])
def test_a_response_that_nests_deeper_than_protobuf_allows(levels: int, array: bool) -> None:
    """The part of a value that is too deep for protobuf is sent as a string of its JSON."""
    value: Any = {"number": 1}
    for _ in range(levels - 1):
        value = [value] if array else {"a": value}
    message = {
        "messageId": "m",
        "role": "ROLE_USER",
        "parts": [{"data": value}, {"text": "x", "metadata": {"v": value}}],
    }
    status = {"state": "TASK_STATE_WORKING", "message": message}
    method = METHODS_V1["ListTasks"]
    answer = method.write_answer(json.dumps({"tasks": [{"id": "t", "contextId": "c", "status": status}]}).encode())
    parts = method.read_answer(answer)["tasks"][0]["status"]["message"]["parts"]
    for found in (parts[0]["data"], parts[1]["metadata"]["v"]):
        assert whole(found) == value
        assert levels != 29 or found == value


def whole(value: Any) -> Any:
    """Return the value with the strings of JSON in it parsed."""
    if isinstance(value, str):
        return json.loads(value)
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("seconds", "nanos"), [(2**62, 0), (-(2**62), 0), (253402300800, 0), (-62135596801, 0), (0, -1), (0, 10**9)]
)
def test_timestamps_out_of_range(seconds: int, nanos: int) -> None:
    """A client's mistake is InvalidParamsError; an agent's is a response that can't be read."""
    method = METHODS_V1["ListTasks"]
    request, answer = method.request(), method.answer()
    request.status_timestamp_after.seconds, request.status_timestamp_after.nanos = seconds, nanos
    with pytest.raises(InvalidParamsError, match="timestamp must be in the years"):
        method.read_request(request.SerializeToString())
    answer.tasks.add().status.timestamp.CopyFrom(request.status_timestamp_after)
    with pytest.raises(ParseError, match="not a valid"):
        method.read_answer(answer.SerializeToString())


def test_null_is_data() -> None:
    part = shape(METHODS_V1["SendMessage"].request.DESCRIPTOR.file.message_types_by_name["Part"])
    assert part.parts({"data": None, "filename": None}) == {"data": STRUCT.Value(null_value=0)}
