"""The official models of 0.3 read Keelbolt's JSON, and conversion between the versions loses nothing."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import InvalidParamsError, KeelboltError, RequestTooLargeError
from keelbolt.protocol import v03, v1
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import (
    CancelTaskRequest,
    CreatePushConfigRequest,
    DeletePushConfigRequest,
    GetPushConfigRequest,
    ListTasksRequest,
    PushConfig,
    PushConfigPage,
    Request,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    TaskPage,
)
from keelbolt.protocol.types import (
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    encode,
)
from tests.unit.protocol import strategies as some
from tests.unit.protocol.official import MODELS_V03, parse_v03, parse_v1

MESSAGE: dict[str, Any] = {
    "kind": "message",
    "messageId": "m",
    "role": "user",
    "parts": [{"kind": "text", "text": "hello"}],
}

OPERATIONS = {model: operation for operation, model in v1.MODELS.items() if not operation.streams}
OPERATIONS[SubscribeToTaskRequest] = Operation.subscribe_to_task

PARAMS = {
    Operation.send_message: "MessageSendParams",
    Operation.get_task: "TaskQueryParams",
    Operation.cancel_task: "TaskIdParams",
    Operation.subscribe_to_task: "TaskIdParams",
    Operation.create_push_config: "TaskPushNotificationConfig",
    Operation.get_push_config: "GetTaskPushNotificationConfigParams",
    Operation.list_push_configs: "ListTaskPushNotificationConfigParams",
    Operation.delete_push_config: "DeleteTaskPushNotificationConfigParams",
}


@given(some.events())
def test_nothing_is_lost_and_the_official_models_agree(event: StreamEvent) -> None:
    body = v03.event(event)
    assert v03.decode_event(json.loads(body)) == event
    parse_v03(type(event).__name__, body)


@given(some.requests)
def test_requests_are_read_back(request: Request) -> None:
    body = v03.encode_request(request)
    operation = OPERATIONS[type(request)]
    assert v03.decode(operation, json.loads(body)) == request
    if name := PARAMS.get(operation):
        parse_v03(name, body)


@given(some.status_updates() | some.artifact_updates)
def test_stored_events(event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
    stored = event.model_dump_json(by_alias=True, exclude_unset=True, exclude={"task_id", "context_id"}).encode()
    splice = v03.status_update if isinstance(event, TaskStatusUpdateEvent) else v03.artifact_update
    assert json.loads(splice(event.task_id, event.context_id, stored)) == json.loads(v03.event(event))


@pytest.mark.parametrize("state", TaskState)
def test_states_and_final(state: TaskState) -> None:
    """`final` is true at the end and whenever the task waits for its user."""
    event = TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=state))
    value = json.loads(v03.event(event))
    assert value["status"]["state"] == state.name.replace("_", "-")
    assert value["final"] is (state.terminal or state.paused)


def test_fields_that_only_1_0_has() -> None:
    parts = [
        Part(data=[1, 2], metadata={"a": 1}),
        Part(text="x", filename="x.txt", media_type="text/markdown"),
        Part(raw=b"\xff", filename="x.bin", media_type="application/x"),
        Part(url="https://x"),
    ]
    value = json.loads(v03.sent_message(Message(message_id="m", role=Role.agent, parts=parts)))
    assert value["role"] == "agent"
    assert value["parts"] == [
        {"kind": "data", "data": {"value": [1, 2]}, "metadata": {"a": 1, "data_part_compat": True}},
        {
            "kind": "text",
            "text": "x",
            "metadata": {"filename_compat": "x.txt", "media_type_compat": "text/markdown"},
        },
        {"kind": "file", "file": {"bytes": "/w==", "name": "x.bin", "mimeType": "application/x"}},
        {"kind": "file", "file": {"uri": "https://x"}},
    ]


@given(some.events())
def test_the_official_sdk_reads_our_extra_fields(event: StreamEvent) -> None:
    """The SDK's conversion from 0.3 to 1.0 returns our input, except names and types of parts that are not files."""
    conversions: Any = import_module("a2a.compat.v0_3.conversions")
    body = v03.event(_without_extras(event))
    model = MODELS_V03.SendStreamingMessageSuccessResponse.model_validate({"id": 1, "result": json.loads(body)})
    assert conversions.to_core_stream_response(model) == parse_v1("StreamResponse", v1.event(_without_extras(event)))


def _without_extras(event: StreamEvent) -> StreamEvent:
    def strip(value: Any) -> Any:
        if isinstance(value, list):
            return [strip(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.keys() & {"text", "raw", "url", "data"}:
            drop = {"filename", "mediaType"} if value.keys() & {"text", "data"} else set()
            return {name: item for name, item in value.items() if name not in drop}
        return {name: item if name == "metadata" else strip(item) for name, item in value.items()}

    return v1.decode_event({name: strip(value) for name, value in json.loads(v1.event(event)).items()})


@given(st.lists(some.push_configs, max_size=3))
def test_push_configs(configs: list[PushConfig]) -> None:
    page = PushConfigPage(configs)
    assert v03.decode_push_config_list(json.loads(v03.push_config_list(page))) == page
    for config in configs:
        parse_v03("TaskPushNotificationConfig", v03.push_config(config))
    assert v03.deleted() == b"null"


@given(st.lists(some.tasks(), max_size=2), some.messages())
def test_answers(tasks: list[Task], message: Message) -> None:
    for task in tasks:
        assert v03.task(task) == v03.sent_task(encode(task))
    assert v03.sent_message(message) == v03.sent_message(encode(message))
    page = TaskPage(tasks, "", len(tasks), len(tasks))
    assert v03.decode_task_list(json.loads(v03.task_list(page))) == page


@pytest.mark.parametrize(("blocking", "immediately"), [(True, False), (False, True), (None, False)])
def test_blocking(blocking: bool | None, immediately: bool) -> None:
    request = v03.decode(Operation.send_message, {"message": MESSAGE, "configuration": {"blocking": blocking}})
    assert isinstance(request, SendMessageRequest)
    assert request.configuration is not None
    assert request.configuration.return_immediately is immediately


def test_inline_push_config() -> None:
    inline = {"url": "https://x", "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "c"}}
    params = {"message": MESSAGE, "configuration": {"pushNotificationConfig": inline, "historyLength": 0}}
    request = v03.decode(Operation.send_streaming_message, params)
    assert isinstance(request, SendMessageRequest)
    assert request.configuration is not None
    assert request.configuration.history_length == 0
    config = request.configuration.task_push_notification_config
    assert config is not None
    assert config.authentication is not None
    assert (config.authentication.scheme, config.authentication.credentials) == ("Bearer", "c")


def test_requests_by_resource_name() -> None:
    name = "tasks/t/pushNotificationConfigs/c"
    assert v03.decode(Operation.cancel_task, {"name": "tasks/t"}) == CancelTaskRequest(id="t")
    assert v03.decode(Operation.get_push_config, {"name": name}) == GetPushConfigRequest(task_id="t", id="c")
    assert v03.decode(Operation.delete_push_config, {"name": name}) == DeletePushConfigRequest(task_id="t", id="c")
    assert v03.decode(Operation.get_push_config, {"id": "t"}) == GetPushConfigRequest(task_id="t")
    expected = CreatePushConfigRequest(task_id="t", config=PushConfig(id="c", task_id="t", url="https://x"))
    inner = {"pushNotificationConfig": {"id": "c", "url": "https://x"}}
    outer = {"push_notification_config": {"url": "https://x"}}
    for params in (
        {"taskId": "t", **inner},
        {"parent": "tasks/t", "configId": "c", "config": {"name": name, **inner}},
        {"parent": "tasks/t", "config_id": "c", "config": outer},
        {"name": name, **inner},
    ):
        assert v03.decode(Operation.create_push_config, params) == expected


def test_tasks_list_has_the_members_of_1_0() -> None:
    params = {"contextId": "c", "status": "input-required"}
    assert v03.decode(Operation.list_tasks, params) == ListTasksRequest(context_id="c", status=TaskState.input_required)


WRONG: list[tuple[Operation, dict[str, Any], str]] = [
    (Operation.send_message, {}, "message"),
    (Operation.send_message, {"": "not_a_dict"}, "message"),
    (Operation.send_message, {"message": MESSAGE | {"parts": "invalid"}}, "message.parts"),
    (Operation.send_message, {"message": MESSAGE | {"parts": None}}, "message.parts"),
    (Operation.send_message, {"message": MESSAGE | {"parts": []}}, "message.parts"),
    (Operation.send_message, {"message": MESSAGE | {"parts": [{"kind": "x"}]}}, "message.parts[0]"),
    (Operation.send_message, {"message": MESSAGE | {"parts": [{"kind": "text"}]}}, "message.parts[0]"),
    (Operation.send_message, {"message": MESSAGE | {"parts": [{"kind": "data", "data": 5}]}}, "message.parts[0]"),
    (Operation.send_message, {"message": MESSAGE | {"parts": [{"kind": "file", "file": 5}]}}, "message.parts[0]"),
    (Operation.send_message, {"message": MESSAGE | {"role": "agent"}}, "message.role"),
    (Operation.send_message, {"message": {"role": "user", "parts": MESSAGE["parts"]}}, "message.messageId"),
    (Operation.send_message, {"message": MESSAGE, "configuration": {"blocking": 1}}, "configuration.blocking"),
    (Operation.send_message, {"message": MESSAGE, "configuration": []}, "configuration"),
    (Operation.get_task, {}, "id"),
    (Operation.get_task, {"name": "people/p"}, "name"),
    (Operation.get_task, {"name": "tasks/"}, "id"),
    (Operation.create_push_config, {"taskId": "t"}, "pushNotificationConfig"),
    (Operation.create_push_config, {"pushNotificationConfig": {"url": "https://x"}}, "taskId"),
    (
        Operation.create_push_config,
        {"taskId": "t", "pushNotificationConfig": {"url": "x"}},
        "pushNotificationConfig.url",
    ),
    (Operation.create_push_config, {"taskId": "t", "pushNotificationConfig": 5}, "pushNotificationConfig"),
    (
        Operation.send_message,
        {"message": MESSAGE, "configuration": {"pushNotificationConfig": {"url": "x"}}},
        "configuration.pushNotificationConfig.url",
    ),
    (Operation.list_push_configs, {"id": ""}, "id"),
    (Operation.get_push_config, {"id": "t", "pushNotificationConfigId": 5}, "pushNotificationConfigId"),
    (Operation.delete_push_config, {"id": "t"}, "pushNotificationConfigId"),
]


@pytest.mark.parametrize(("operation", "params", "field"), WRONG)
def test_a_wrong_field_is_named(operation: Operation, params: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        v03.decode(operation, params)
    assert [violation.field for violation in caught.value.violations] == [field]


MEMBERS = st.sampled_from(
    ["message", "configuration", "parts", "content", "kind", "id", "name", "config", "pushNotificationConfig"]
)
NESTED = st.recursive(
    some.scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=4), max_leaves=8
)


@given(st.sampled_from(Operation), st.dictionaries(MEMBERS, NESTED))
def test_any_request_raises_only_our_errors(operation: Operation, params: dict[str, Any]) -> None:
    try:
        v03.decode(operation, params)
    except KeelboltError as error:
        assert isinstance(error, InvalidParamsError | RequestTooLargeError)  # noqa: PT017


@given(NESTED)
def test_any_response_raises_only_our_errors(value: Any) -> None:
    for read in (v03.decode_event, v03.decode_task, v03.decode_push_config, v03.decode_push_config_list):
        with suppress(InvalidParamsError):
            read(value)
