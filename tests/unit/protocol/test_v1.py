"""1.0 JSON: reading, writing, and agreement with the official protobuf messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import InvalidParamsError, KeelboltError, RequestTooLargeError
from keelbolt.protocol import v1
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import (
    CreatePushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    ListTasksRequest,
    PushConfig,
    PushConfigPage,
    Request,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    TaskPage,
)
from keelbolt.protocol.types import Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent, encode
from tests.unit.protocol import strategies as some
from tests.unit.protocol.official import PB_V1, parse_v1, to_json

MESSAGE: dict[str, Any] = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}

OPERATIONS = {model: operation for operation, model in v1.MODELS.items() if not operation.streams}
OPERATIONS[SubscribeToTaskRequest] = Operation.subscribe_to_task


@given(some.events())
def test_events_are_read_back_and_protobuf_reads_them_strictly(event: StreamEvent) -> None:
    body = v1.event(event)
    assert v1.decode_event(json.loads(body)) == event
    parse_v1("StreamResponse", body)


@given(some.requests)
def test_requests_are_read_back_and_protobuf_reads_them_strictly(request: Request) -> None:
    body = v1.encode_request(request)
    operation = OPERATIONS[type(request)]
    assert v1.decode(operation, json.loads(body)) == request
    name = "TaskPushNotificationConfig" if isinstance(request, CreatePushConfigRequest) else f"{operation}Request"
    parse_v1(name, body)


@given(some.events())
def test_json_of_the_official_sdk_is_read(event: StreamEvent) -> None:
    """Numbers, which protobuf converts to floats, and values that it can't distinguish from absent are excluded."""
    official = parse_v1("StreamResponse", v1.event(event))
    read = v1.decode_event(json.loads(to_json(official)))
    assert parse_v1("StreamResponse", v1.event(read)) == official


@given(some.status_updates() | some.artifact_updates, some.ids, some.ids)
def test_stored_events_are_spliced(
    event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent, task_id: str, context_id: str
) -> None:
    stored = event.model_dump_json(by_alias=True, exclude_unset=True, exclude={"task_id", "context_id"}).encode()
    splice = v1.status_update if isinstance(event, TaskStatusUpdateEvent) else v1.artifact_update
    body = splice(task_id, context_id, stored)
    assert v1.decode_event(json.loads(body)) == event.model_copy(update={"task_id": task_id, "context_id": context_id})
    assert stored[1:] in body
    parse_v1("StreamResponse", body)


@given(st.lists(some.tasks(), max_size=3), some.texts, st.booleans())
def test_pages_of_tasks(tasks: list[Task], token: str, as_bytes: bool) -> None:
    page = TaskPage([encode(task) for task in tasks] if as_bytes else tasks, token, 50, 2**31 - 1)
    body = v1.task_list(page)
    assert v1.decode_task_list(json.loads(body)) == TaskPage(tasks, token, 50, 2**31 - 1)
    assert json.loads(body).keys() == {"tasks", "nextPageToken", "pageSize", "totalSize"}
    parse_v1("ListTasksResponse", body)


@given(st.lists(some.push_configs, max_size=3), some.texts)
def test_push_configs(configs: list[PushConfig], token: str) -> None:
    page = PushConfigPage(configs, token)
    body = v1.push_config_list(page)
    assert v1.decode_push_config_list(json.loads(body)) == page
    parse_v1("ListTaskPushNotificationConfigsResponse", body)
    for config in configs:
        assert v1.decode_push_config(json.loads(v1.push_config(config))) == config
        parse_v1("TaskPushNotificationConfig", v1.push_config(config))


@given(some.tasks(), some.messages())
def test_responses_of_send(task: Task, message: Any) -> None:
    assert v1.sent_task(task) == v1.sent_task(encode(task)) == b'{"task":%b}' % v1.task(task)
    assert v1.sent_message(message) == v1.sent_message(encode(message))
    parse_v1("SendMessageResponse", v1.sent_task(task))
    parse_v1("SendMessageResponse", v1.sent_message(message))
    parse_v1("Task", v1.task(task))


def test_numbers_of_enums_are_those_of_protobuf() -> None:
    assert {TaskState(number): name for name, number in PB_V1.TaskState.items() if number} == {
        state: state.value for state in TaskState
    }


def test_both_spellings_nulls_and_unknown_members() -> None:
    message = {
        "message_id": "m",
        "role": 1,
        "parts": [{"text": "x", "data": None, "media_type": "text/plain", "news": 1}],
        "contextId": "",
        "task_id": None,
        "future": {},
    }
    params = {
        "message": message,
        "configuration": {"acceptedOutputModes": None, "history_length": "3", "returnImmediately": None},
        "metadata": None,
        "tenant": "",
        "future": 1,
    }
    request = v1.decode(Operation.send_message, params)
    assert isinstance(request, SendMessageRequest)
    assert request.tenant is None
    assert request.message.context_id is None
    assert request.configuration is not None
    assert request.configuration.history_length == 3
    assert not request.configuration.return_immediately
    assert b'"parts":[{"text":"x","mediaType":"text/plain"}]' in encode(request.message)
    parse_v1("Message", encode(request.message))


def test_query_parameters_are_read_too() -> None:
    query = {
        "status": "TASK_STATE_WORKING",
        "pageSize": "7",
        "includeArtifacts": "true",
        "statusTimestampAfter": "2025-10-28T10:30:00.123456789+02:00",
    }
    request = v1.decode(Operation.list_tasks, query)
    assert isinstance(request, ListTasksRequest)
    assert (request.status, request.page_size, request.include_artifacts) == (TaskState.working, 7, True)
    assert request.status_timestamp_after is not None
    assert request.status_timestamp_after.isoformat() == "2025-10-28T10:30:00.123456+02:00"
    assert v1.decode(Operation.list_tasks, {"status": "TASK_STATE_UNSPECIFIED", "pageToken": ""}) == ListTasksRequest()


def test_an_unset_page_size_of_configs_is_zero() -> None:
    assert v1.decode(Operation.list_push_configs, {"taskId": "t", "pageSize": 0}) == ListPushConfigsRequest(task_id="t")


WRONG: list[tuple[Operation, dict[str, Any], str]] = [
    (Operation.send_message, {}, "message"),
    (Operation.send_message, {"message": "x"}, "message"),
    (Operation.send_message, {"message": MESSAGE | {"messageId": ""}}, "message.messageId"),
    (Operation.send_message, {"message": MESSAGE | {"messageId": "x" * 1025}}, "message.messageId"),
    (Operation.send_message, {"message": MESSAGE | {"contextId": 5}}, "message.contextId"),
    (Operation.send_message, {"message": MESSAGE | {"contextId": "x" * 1025}}, "message.contextId"),
    (Operation.send_message, {"message": MESSAGE | {"role": "ROLE_AGENT"}}, "message.role"),
    (Operation.send_message, {"message": MESSAGE | {"role": "ROLE_UNSPECIFIED"}}, "message.role"),
    (Operation.send_message, {"message": MESSAGE | {"role": True}}, "message.role"),
    (Operation.send_message, {"message": MESSAGE | {"parts": []}}, "message.parts"),
    (Operation.send_message, {"message": MESSAGE | {"parts": "invalid"}}, "message.parts"),
    (Operation.send_message, {"message": MESSAGE | {"parts": [{}]}}, "message.parts[0]"),
    (Operation.send_message, {"message": MESSAGE | {"parts": [{"text": "a", "url": "b"}]}}, "message.parts[0]"),
    (Operation.send_message, {"message": MESSAGE | {"parts": [{"raw": "%"}]}}, "message.parts[0].raw"),
    (Operation.send_message, {"message": MESSAGE, "configuration": []}, "configuration"),
    (
        Operation.send_message,
        {"message": MESSAGE, "configuration": {"returnImmediately": 1}},
        "configuration.returnImmediately",
    ),
    (Operation.get_task, {}, "id"),
    (Operation.get_task, {"id": ""}, "id"),
    (Operation.get_task, {"id": {"x": 1}}, "id"),
    (Operation.get_task, {"id": "t", "historyLength": -1}, "historyLength"),
    (Operation.get_task, {"id": "t", "historyLength": True}, "historyLength"),
    (Operation.get_task, {"id": "t", "historyLength": 1.5}, "historyLength"),
    (Operation.get_task, {"id": "t", "historyLength": 2**31}, "historyLength"),
    (Operation.list_tasks, {"pageSize": 0}, "pageSize"),
    (Operation.list_tasks, {"pageSize": 101}, "pageSize"),
    (Operation.list_tasks, {"status": "working-hard"}, "status"),
    (Operation.list_tasks, {"status": False}, "status"),
    (Operation.list_tasks, {"statusTimestampAfter": "yesterday"}, "statusTimestampAfter"),
    (Operation.list_tasks, {"statusTimestampAfter": "2025-10-28T10:30:00"}, "statusTimestampAfter"),
    (Operation.list_tasks, {"statusTimestampAfter": 5}, "statusTimestampAfter"),
    (Operation.create_push_config, {"url": "https://example.com"}, "taskId"),
    (Operation.create_push_config, {"taskId": "t"}, "url"),
    (Operation.create_push_config, {"taskId": "t", "url": "file:///etc/passwd"}, "url"),
    (Operation.create_push_config, {"taskId": "t", "url": "https://[::1"}, "url"),
    (Operation.create_push_config, {"taskId": "t", "url": "https://x\r\ny"}, "url"),
    (Operation.create_push_config, {"taskId": "t", "url": "https://x:99999"}, "url"),
    (
        Operation.create_push_config,
        {"taskId": "t", "url": "https://x", "authentication": {"credentials": "c"}},
        "authentication.scheme",
    ),
    (Operation.get_push_config, {"taskId": "t"}, "id"),
    (Operation.delete_push_config, {"taskId": "t"}, "id"),
]


@pytest.mark.parametrize(("operation", "params", "field"), WRONG)
def test_a_wrong_field_is_named(operation: Operation, params: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        v1.decode(operation, params)
    assert [violation.field for violation in caught.value.violations] == [field]


def test_a_violation_never_repeats_the_value() -> None:
    config = {"taskId": "t", "url": "secret", "token": ["secret"], "authentication": {"scheme": {"secret": "secret"}}}
    with pytest.raises(InvalidParamsError) as caught:
        v1.decode(Operation.create_push_config, config)
    assert len(caught.value.violations) == 3
    assert "secret" not in f"{caught.value} {caught.value.violations}"


def test_the_number_of_violations_is_limited() -> None:
    with pytest.raises(InvalidParamsError) as caught:
        v1.decode(Operation.send_message, {"message": MESSAGE | {"parts": [{}] * 1000}})
    assert len(caught.value.violations) == 20


@given(st.sampled_from(Operation), st.dictionaries(st.text(max_size=10), some.json_values))
def test_any_request_raises_only_our_errors(operation: Operation, params: dict[str, Any]) -> None:
    try:
        v1.decode(operation, params)
    except KeelboltError as error:
        assert isinstance(error, InvalidParamsError | RequestTooLargeError)  # noqa: PT017


def test_big_integers_stay_exact() -> None:
    """A protobuf Struct would convert them to floats."""
    number = 9007199254740993
    request = v1.decode(Operation.send_message, {"message": MESSAGE | {"parts": [{"data": {"n": number}}]}})
    assert isinstance(request, SendMessageRequest)
    assert b"9007199254740993" in encode(request.message)


def test_the_request_of_get() -> None:
    assert v1.decode(Operation.get_task, {"id": "t", "historyLength": 0, "tenant": "a"}) == GetTaskRequest(
        id="t", history_length=0, tenant="a"
    )
