"""The JSON of 0.3's protobuf: the official messages read it strictly, and requests of official clients are read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.protocol import v03, v03_proto
from keelbolt.protocol.codec import CODECS, WireCodec
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import PushConfig, PushConfigPage, SendMessageRequest, StreamEvent, TaskPage
from keelbolt.protocol.types import Message, Role, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent, encode
from tests.unit.protocol import strategies as some
from tests.unit.protocol.official import parse_v03_proto, to_json, to_snake_json


@given(some.events(references=False))
def test_nothing_is_lost_and_protobuf_reads_it_strictly(event: StreamEvent) -> None:
    body = v03_proto.event(event)
    assert v03_proto.decode_event(json.loads(body)) == event
    parse_v03_proto("StreamResponse", body)


@given(some.messages())
def test_references_are_not_supported(message: Message) -> None:
    parse_v03_proto("SendMessageResponse", v03_proto.sent_message(message))


@given(some.status_updates() | some.artifact_updates)
def test_stored_events(event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
    stored = event.model_dump_json(by_alias=True, exclude_unset=True, exclude={"task_id", "context_id"}).encode()
    splice = v03_proto.status_update if isinstance(event, TaskStatusUpdateEvent) else v03_proto.artifact_update
    assert json.loads(splice(event.task_id, event.context_id, stored)) == json.loads(v03_proto.event(event))


@given(st.lists(some.push_configs, max_size=2))
def test_push_configs(configs: list[PushConfig]) -> None:
    page = PushConfigPage(configs)
    parse_v03_proto("ListTaskPushNotificationConfigResponse", v03_proto.push_config_list(page))
    for config in configs:
        parse_v03_proto("TaskPushNotificationConfig", v03_proto.push_config(config))


def test_push_configs_are_read_back() -> None:
    page = PushConfigPage([PushConfig(id="c", task_id="t", url="https://x", token="a")], "next")
    assert v03_proto.decode_push_config_list(json.loads(v03_proto.push_config_list(page))) == page


@given(some.tasks(references=False))
def test_tasks(task: Task) -> None:
    assert v03_proto.task(task) == v03_proto.task(encode(task))
    parse_v03_proto("Task", v03_proto.task(task))
    parse_v03_proto("SendMessageResponse", v03_proto.sent_task(task))
    page = TaskPage([task], "", 1, 1)
    assert v03_proto.decode_task_list(json.loads(v03_proto.task_list(page))) == page


@given(some.messages(references=False, role=Role.user), st.booleans())
def test_requests_of_official_rest_clients_are_read(message: Message, snake: bool) -> None:
    """Names are in camelCase or snake_case. Protobuf drops empty strings and converts numbers to floats."""
    body = json.loads(v03_proto.sent_message(message))
    official = parse_v03_proto("SendMessageRequest", json.dumps(body).encode())
    official.configuration.blocking = True
    sent = json.loads(to_snake_json(official) if snake else to_json(official))
    request = v03.decode(Operation.send_message, sent)
    assert isinstance(request, SendMessageRequest)
    assert request.configuration is not None
    assert not request.configuration.return_immediately
    again = parse_v03_proto("SendMessageResponse", v03_proto.sent_message(request.message))
    assert again.msg == official.request


@pytest.mark.parametrize(("configuration", "immediately"), [({}, True), ({"blocking": True}, False), (None, None)])
def test_blocking_is_false_when_protobuf_does_not_send_it(
    configuration: dict[str, bool] | None, immediately: bool | None
) -> None:
    message = {"message_id": "m", "role": "ROLE_USER", "content": [{"text": "x"}]}
    request = v03.decode(Operation.send_message, {"request": message, "configuration": configuration})
    assert isinstance(request, SendMessageRequest)
    assert (request.configuration and request.configuration.return_immediately) is immediately


def test_every_codec_has_the_same_methods() -> None:
    codecs: list[WireCodec] = [v03_proto, *CODECS.values()]
    assert all(codec.EventEncoder("t", "c") for codec in codecs)
