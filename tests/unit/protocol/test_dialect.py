"""The dialect of 0.3 that clients of apcore agents send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import InvalidParamsError, KeelboltError, RequestTooLargeError
from keelbolt.protocol import dialect, v03
from keelbolt.protocol.operations import METHODS_V03, Operation
from keelbolt.protocol.requests import (
    CancelTaskRequest,
    CreatePushConfigRequest,
    DeletePushConfigRequest,
    GetPushConfigRequest,
    ListTasksRequest,
    PushConfig,
    Request,
    SendMessageRequest,
    TaskPage,
)
from keelbolt.protocol.types import Part, Task, TaskState, TaskStatus
from tests.unit.protocol import strategies as some
from tests.unit.protocol.test_v03 import OPERATIONS


def test_a_message() -> None:
    params = {
        "message": {
            "role": "user",
            "parts": [
                {"type": "text", "text": "hello"},
                {"type": "data", "data": {"a": 1}, "mediaType": "application/json"},
                {"type": "file", "uri": "https://x", "name": "x.txt", "mimeType": "text/plain"},
                {"kind": "text", "text": "plain"},
            ],
            "metadata": {"a": 1},
        },
        "contextId": "c",
        "metadata": {"skillId": "math.add"},
    }
    request = dialect.decode(Operation.send_message, params, new_id=lambda: "made")
    assert isinstance(request, SendMessageRequest)
    message = request.message
    assert (message.message_id, message.context_id) == ("made", "c")
    assert message.metadata == {"skillId": "math.add", "a": 1}
    assert request.metadata == {"skillId": "math.add"}
    assert message.parts == [
        Part(text="hello"),
        Part(data={"a": 1}, media_type="application/json"),
        Part(url="https://x", filename="x.txt", media_type="text/plain"),
        Part(text="plain"),
    ]


def test_members_of_the_message_take_precedence() -> None:
    message = {
        "messageId": "m",
        "role": "user",
        "parts": [{"type": "text", "text": ""}],
        "contextId": "inner",
        "metadata": {"skillId": "inner"},
    }
    params = {"message": message, "contextId": "outer", "metadata": {"skillId": "outer"}}
    request = dialect.decode(Operation.send_message, params, new_id=lambda: "made")
    assert isinstance(request, SendMessageRequest)
    assert request.message.context_id == "inner"
    assert request.message.metadata == {"skillId": "inner"}
    assert request.message.message_id == "m"


def test_without_an_id_generator_a_message_needs_its_id() -> None:
    with pytest.raises(InvalidParamsError):
        dialect.decode(Operation.send_message, {"message": {"role": "user", "parts": [{"type": "text", "text": ""}]}})


def test_a_message_with_kind_needs_an_id() -> None:
    """A message with `kind` is a message of 0.3, where messageId is required."""
    message = {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": ""}]}
    with pytest.raises(InvalidParamsError):
        dialect.decode(Operation.send_message, {"message": message}, new_id=lambda: "made")


def test_a_part_of_an_unknown_type_is_refused() -> None:
    message = {"messageId": "m", "role": "user", "parts": [{"type": "smell", "text": "roses"}]}
    with pytest.raises(InvalidParamsError):
        dialect.decode(Operation.send_message, {"message": message})


def test_push_configs_by_their_task() -> None:
    config = PushConfig(task_id="t", url="https://x")
    assert dialect.decode(Operation.create_push_config, {"taskId": "t", "url": "https://x"}) == CreatePushConfigRequest(
        task_id="t", config=config
    )
    assert dialect.decode(Operation.get_push_config, {"taskId": "t"}) == GetPushConfigRequest(task_id="t")
    assert dialect.decode(Operation.delete_push_config, {"taskId": "t"}) == DeletePushConfigRequest(task_id="t")
    both = {"id": "t", "pushNotificationConfigId": "c"}
    assert dialect.decode(Operation.delete_push_config, both) == DeletePushConfigRequest(task_id="t", id="c")
    with pytest.raises(InvalidParamsError):
        dialect.decode(Operation.delete_push_config, {})


def test_tasks_by_task_id() -> None:
    assert dialect.decode(Operation.cancel_task, {"taskId": "t"}) == CancelTaskRequest(id="t")


def test_pages() -> None:
    params = {"cursor": "x", "limit": 500, "contextId": "c", "status": "input_required"}
    assert dialect.decode(METHODS_V03["tasks/list"], params) == ListTasksRequest(
        page_token="x", page_size=100, context_id="c", status=TaskState.input_required
    )
    assert dialect.decode(Operation.list_tasks, {"cursor": None}) == ListTasksRequest()
    with pytest.raises(InvalidParamsError):
        dialect.decode(Operation.list_tasks, {"limit": 0})
    task = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.working))
    answer = json.loads(dialect.task_list(TaskPage([task], "more", 1, 2)))
    assert answer["tasks"][0]["kind"] == "task"
    assert (answer["nextCursor"], answer["nextPageToken"], answer["totalSize"]) == ("more", "more", 2)
    assert json.loads(dialect.task_list(TaskPage([], "", 1, 0)))["nextCursor"] is None


@given(some.requests)
def test_all_of_0_3_is_read_as_0_3(request: Request) -> None:
    params = json.loads(v03.encode_request(request))
    assert dialect.decode(OPERATIONS[type(request)], params) == request


NAMES = st.sampled_from(
    ["message", "type", "parts", "metadata", "taskId", "url", "cursor", "limit", "contextId", "file"]
)
NESTED = st.recursive(
    some.scalars | st.sampled_from(["text", "file", "data"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(Operation), st.dictionaries(NAMES, NESTED))
def test_any_input_raises_only_our_errors(operation: Operation, params: dict[str, Any]) -> None:
    try:
        dialect.decode(operation, params, new_id=lambda: "made")
    except KeelboltError as error:
        assert isinstance(error, InvalidParamsError | RequestTooLargeError)  # noqa: PT017
