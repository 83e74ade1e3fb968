"""Requests of our client over 0.3's REST: the official protobuf reads them strictly, and our server reads them back."""

from __future__ import annotations

import json

from hypothesis import given

from keelbolt.protocol import v03, v03_proto
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import (
    CreatePushConfigRequest,
    GetTaskRequest,
    PushConfig,
    SendConfiguration,
    SendMessageRequest,
)
from keelbolt.protocol.types import Message, Role
from tests.unit.protocol import strategies as some
from tests.unit.protocol.official import parse_v03_proto


@given(some.messages(references=False, role=Role.user))
def test_messages(message: Message) -> None:
    body = v03_proto.encode_request(SendMessageRequest(message=message, metadata={"skill": "x"}))
    parse_v03_proto("SendMessageRequest", body)
    back = v03.decode(Operation.send_message, json.loads(body))
    assert isinstance(back, SendMessageRequest)
    assert (back.message, back.metadata) == (message, {"skill": "x"})


@given(some.messages(references=False, role=Role.user))
def test_configurations(message: Message) -> None:
    config = PushConfig(id="c", url="https://example.com/hook", token="t")
    wanted = SendConfiguration(
        accepted_output_modes=["text/plain"],
        history_length=3,
        return_immediately=True,
        task_push_notification_config=config,
    )
    body = v03_proto.encode_request(SendMessageRequest(message=message, configuration=wanted))
    parse_v03_proto("SendMessageRequest", body)
    back = v03.decode(Operation.send_message, json.loads(body))
    assert isinstance(back, SendMessageRequest)
    assert back.configuration is not None
    assert back.configuration.return_immediately
    assert back.configuration.history_length == 3
    assert back.configuration.task_push_notification_config is not None
    assert back.configuration.task_push_notification_config.url == config.url


@given(some.push_configs)
def test_push_configs(config: PushConfig) -> None:
    body = v03_proto.encode_request(CreatePushConfigRequest(task_id="t", config=config))
    parse_v03_proto("CreateTaskPushNotificationConfigRequest", body)
    back = v03.decode(Operation.create_push_config, {**json.loads(body), "taskId": "t"})
    assert isinstance(back, CreatePushConfigRequest)
    assert (back.task_id, back.config.id, back.config.url) == ("t", config.id, config.url)


def test_requests_without_a_body() -> None:
    assert v03_proto.encode_request(GetTaskRequest(id="t")) == b"{}"
