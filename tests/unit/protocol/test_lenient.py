"""A client reads responses in which agents omit members."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from keelbolt.errors import InvalidParamsError
from keelbolt.protocol import v03, v03_proto, v1
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.types import Message, Role, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent


def test_a_chunk_without_parts_closes_its_artifact() -> None:
    """proto3 JSON has no empty lists: the official SDK and apcore-a2a end an artifact like this."""
    chunk = {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a"}, "append": True, "lastChunk": True}
    for event in (
        v1.decode_event({"artifactUpdate": chunk}),
        v03.decode_event({"kind": "artifact-update", **chunk}),
        v03_proto.decode_event({"artifactUpdate": chunk}),
    ):
        assert isinstance(event, TaskArtifactUpdateEvent)
        assert (event.artifact.parts, event.last_chunk) == ([], True)


def test_a_task_with_empty_members() -> None:
    given = {
        "id": "t",
        "status": {"message": {}},
        "artifacts": [{"artifactId": "a"}, {"parts": [{}, {"text": ""}, {"metadata": {"x": 1}}]}],
        "history": [{"role": "ROLE_USER", "messageId": "m"}, {"role": "ROLE_UNSPECIFIED"}],
    }
    task = v1.decode_task(given)
    assert (task.context_id, task.status.state) == ("", TaskState.submitted)
    assert [len(artifact.parts) for artifact in task.artifacts] == [0, 1]
    assert [message.role for message in task.history] == [Role.user, Role.agent]
    page = v1.decode_task_list({"tasks": [given]})
    assert isinstance(page.tasks[0], Task)
    assert v1.decode_task_list({"tasks": None}).tasks == []
    assert v1.decode_push_config_list({}).configs == []


def test_a_response_of_0_3_without_its_kind() -> None:
    status = {"state": "unknown"}
    assert isinstance(v03.decode_event({"id": "t", "contextId": "c", "status": status}), Task)
    update = v03.decode_event({"taskId": "t", "contextId": "c", "status": status, "final": False})
    assert isinstance(update, TaskStatusUpdateEvent)
    assert update.status.state is TaskState.submitted
    assert isinstance(v03.decode_event({"role": "agent", "parts": [{"text": "Hi"}]}), Message)


@pytest.mark.parametrize(
    "given",
    [
        {"id": "t"},
        {"id": "t", "status": {"state": "TASK_STATE_DANCING"}},
        {"status": {"state": "TASK_STATE_WORKING"}},
        {"id": "t", "status": {"state": "TASK_STATE_WORKING"}, "artifacts": [{"parts": "many"}]},
        {"id": "t", "status": {"state": "TASK_STATE_WORKING"}, "history": [{"parts": [{"text": 1}]}]},
    ],
)
def test_invalid_values_stay_errors(given: Any) -> None:
    with pytest.raises(InvalidParamsError):
        v1.decode_task(given)


@pytest.mark.parametrize(
    "message", [{"messageId": "m", "role": "ROLE_USER"}, {"messageId": "m", "parts": [{"text": ""}]}]
)
def test_a_server_stays_strict(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidParamsError):
        v1.decode(Operation.send_message, {"message": message})


@pytest.mark.parametrize("content", [b"\x00\xff", b"plain text", b"test", b"AAE=", b""])
def test_a_file_in_the_protobuf_of_0_3_is_base64_within_bytes(content: bytes) -> None:
    """The official SDK writes files like this; a file that was sent as bytes is read too."""
    message = Message.model_validate(
        {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"raw": content, "filename": "f"}]}
    )
    written = json.loads(v03_proto.sent_message(message))
    field = written["message"]["content"][0]["file"]["fileWithBytes"]
    assert base64.b64decode(field) == base64.b64encode(content)
    back = v03_proto.decode_event(written)
    assert isinstance(back, Message)
    assert back.parts[0].raw == content
    if content == b"\x00\xff":
        written["message"]["content"][0]["file"]["fileWithBytes"] = base64.b64encode(content).decode()
        plain = v03_proto.decode_event(written)
        assert isinstance(plain, Message)
        assert plain.parts[0].raw == content
